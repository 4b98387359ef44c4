"""Settings for the clients of a secure cluster, one file for each family: DIR/clients/NAME/.

ca.crt, password           what the others name or hold
java.properties            Kafka's own tools and clients, and ottla's --command-config
librdkafka.properties      librdkafka, and with it most languages
kcat.conf                  kcat -F
confluent-kafka.json       Producer(json.load(file))
kafka-python.json          KafkaProducer(**json.load(file))
aiokafka.py                settings() gives the arguments of AIOKafkaProducer
kafkajs.json               new Kafka(JSON.parse(text))
franz_go.go, sarama.go     a function each that reads ca.crt and password beside it
spark.json                 spark.readStream.format("kafka").options(**json.load(file))
env                        for a shell: . DIR/clients/NAME/env

All are 0600 in a directory of 0700. Programmes never hold the password in their text.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

from ottla.local.errors import InvalidUse
from ottla.local.private_files import private_directory, write_private

ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
JAVA: Final = "java.properties"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class UserLogin(NamedTuple):
    """How one user reaches the cluster."""

    bootstrap: str
    user: str
    password: str
    directory: Path

    def __repr__(self) -> str:
        return f"UserLogin({self.user!r}, {self.bootstrap})"

    @property
    def ca(self) -> str:
        return str(self.directory / "ca.crt")


def clients_directory(directory: Path) -> Path:
    return directory / "clients"


def admin_file(directory: Path) -> Path:
    """What commands use for a cluster in this directory, if it is a secure one."""
    return clients_directory(directory) / ADMIN / JAVA


def user_directory(directory: Path, user: str) -> Path:
    """A name may have characters that a directory's name cannot have."""
    plain = "".join(each if each.isalnum() or each in "-_@." else f"%{ord(each):x}" for each in user)  # fmt: skip
    return clients_directory(directory) / (plain if plain.strip(".") else f"%{plain}")


def require_usable(password: str) -> None:
    """InvalidUse for a password that some of these files cannot hold."""
    if not password:
        raise InvalidUse("the password is empty")
    odd = any(ord(each) < 32 or ord(each) == 127 or ord(each) > 0xFFFF for each in password)
    if odd or password != password.strip():
        raise InvalidUse(
            "the password has control characters, emoji, or blanks around it, which some files of clients"
            " cannot hold"
        )


def write_client_files(login: UserLogin, ca: bytes) -> None:
    require_usable(login.password)
    private_directory(login.directory.parent)
    private_directory(login.directory)
    write_private(login.directory / "ca.crt", ca)
    write_private(login.directory / "password", login.password + "\n")
    for name, text in FAMILIES.items():
        write_private(login.directory / name, text(login))


def remove_client_files(directory: Path, user: str) -> bool:
    """Whether there were any."""
    found = user_directory(directory, user)
    if not found.is_dir():
        return False
    shutil.rmtree(found)
    return True


def stored_password(directory: Path, user: str) -> str | None:
    file = user_directory(directory, user) / "password"
    return file.read_text().removesuffix("\n") if file.exists() else None


# One function for each family


def kafka_settings(login: UserLogin) -> dict[str, str]:
    """As Java's clients name them."""
    return {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{_quoted(login.user)}" password="{_quoted(login.password)}";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": login.ca,
    }


def librdkafka_settings(login: UserLogin) -> dict[str, str]:
    return {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": MECHANISM,
        "sasl.username": login.user,
        "sasl.password": login.password,
        "ssl.ca.location": login.ca,
    }


def kafka_python_settings(login: UserLogin) -> dict[str, str]:
    return {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
        "ssl_cafile": login.ca,
    }


def kafkajs_settings(login: UserLogin) -> dict[str, object]:
    return {
        "brokers": login.bootstrap.split(","),
        "ssl": {"ca": [Path(login.ca).read_text()]},
        "sasl": {
            "mechanism": MECHANISM.lower(),
            "username": login.user,
            "password": login.password,
        },
    }


def _quoted(text: str) -> str:
    """For a JAAS text."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _properties(settings: Mapping[str, str], *, escape: bool) -> str:
    def value(text: str) -> str:
        if not escape:
            return text
        # Java reads these files as Latin-1 unless told otherwise, so other characters are escaped.
        plain = text.replace("\\", "\\\\")
        return "".join(each if ord(each) < 127 else f"\\u{ord(each):04x}" for each in plain)

    return "".join(f"{name}={value(text)}\n" for name, text in settings.items())


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _aiokafka(login: UserLogin) -> str:
    common = kafka_python_settings(login)
    shown = {
        name: text
        for name, text in common.items()
        if name not in ("sasl_plain_password", "ssl_cafile")
    }
    return f'''"""Settings of {login.user!a} for aiokafka: AIOKafkaProducer(**settings())."""

from pathlib import Path

from aiokafka.helpers import create_ssl_context

HERE = Path(__file__).parent


def settings():
    return {{
        **{shown!a},
        "sasl_plain_password": (HERE / "password").read_text().removesuffix("\\n"),
        "ssl_context": create_ssl_context(cafile=str(HERE / "ca.crt")),
    }}
'''


def _franz_go(login: UserLogin) -> str:
    return _go(
        login,
        "franz-go",
        "Options gives what kgo.NewClient takes.",
        imports=(
            '"github.com/twmb/franz-go/pkg/kgo"',
            '"github.com/twmb/franz-go/pkg/sasl/scram"',
        ),
        body="""func Options() ([]kgo.Opt, error) {
	password, trusted, err := secrets()
	if err != nil {
		return nil, err
	}
	login := scram.Auth{User: user, Pass: password}
	return []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.DialTLSConfig(&tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}),
		kgo.SASL(login.AsSha512Mechanism()),
	}, nil
}
""",
    )


def _sarama(login: UserLogin) -> str:
    return _go(
        login,
        "sarama",
        "Config gives the configuration, and the addresses for sarama.NewClient.",
        imports=('"github.com/IBM/sarama"', '"github.com/xdg-go/scram"'),
        body="""func Config() (*sarama.Config, []string, error) {
	password, trusted, err := secrets()
	if err != nil {
		return nil, nil, err
	}
	config := sarama.NewConfig()
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
	config.Net.SASL.User = user
	config.Net.SASL.Password = password
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &login{} }
	return config, strings.Split(bootstrap, ","), nil
}

type login struct{ *scram.ClientConversation }

func (each *login) Begin(user, password, authzid string) error {
	client, err := scram.SHA512.NewClient(user, password, authzid)
	if err != nil {
		return err
	}
	each.ClientConversation = client.NewConversation()
	return nil
}
""",
    )


def _go(login: UserLogin, family: str, about: str, *, imports: tuple[str, str], body: str) -> str:
    lines = "\n".join(f"\t{each}" for each in imports)
    return f"""// Package {_PACKAGES[family]}: settings of {json.dumps(login.user)} for {family}. {about}
package {_PACKAGES[family]}

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

{lines}
)

const (
	bootstrap = {json.dumps(login.bootstrap)}
	user      = {json.dumps(login.user)}
	directory = {json.dumps(str(login.directory))}
)

{body}
func secrets() (string, *x509.CertPool, error) {{
	password, err := os.ReadFile(directory + "/password")
	if err != nil {{
		return "", nil, err
	}}
	ca, err := os.ReadFile(directory + "/ca.crt")
	if err != nil {{
		return "", nil, err
	}}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(ca) {{
		return "", nil, fmt.Errorf("%s/ca.crt: no certificate", directory)
	}}
	return strings.TrimSuffix(string(password), "\\n"), trusted, nil
}}
"""


_PACKAGES: Final = {"franz-go": "franzgo", "sarama": "saramaconfig"}


def _env(login: UserLogin) -> str:
    return (
        f"export OTTLA_BOOTSTRAP={quote(login.bootstrap)}\n"
        f"export OTTLA_CONFIG={quote(str(login.directory / JAVA))}\n"
    )


FAMILIES: Final[Mapping[str, Callable[[UserLogin], str]]] = {
    JAVA: lambda login: _properties(kafka_settings(login), escape=True),
    "librdkafka.properties": lambda login: _properties(librdkafka_settings(login), escape=False),
    "kcat.conf": lambda login: _properties(librdkafka_settings(login), escape=False),
    "confluent-kafka.json": lambda login: _json(librdkafka_settings(login)),
    "kafka-python.json": lambda login: _json(kafka_python_settings(login)),
    "aiokafka.py": _aiokafka,
    "kafkajs.json": lambda login: _json(kafkajs_settings(login)),
    "franz_go.go": _franz_go,
    "sarama.go": _sarama,
    "spark.json": lambda login: _json(
        {f"kafka.{name}": text for name, text in kafka_settings(login).items()}
    ),
    "env": _env,
}
