// What Apache Kafka's StandardAuthorizer decides about the questions in a file: for each a line, "allowed" or "denied".
//
// Each line of the file has words between tabs:
//   authorizer  SUPER_USERS  ALLOW_EVERYONE               a new one, without ACLs
//   acl         TYPE PATTERN NAME PRINCIPAL HOST OPERATION PERMISSION
//   may         PRINCIPAL HOST OPERATION TYPE NAME
//   may-some    PRINCIPAL HOST OPERATION TYPE

import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class Decisions {
    record Asked(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "client"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] args) throws Exception {
        StandardAuthorizer authorizer = null;
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] word = line.split("\t", -1);
            switch (word[0]) {
                case "authorizer" -> {
                    Map<String, Object> settings = new HashMap<>();
                    settings.put("node.id", "1");
                    settings.put("super.users", word[1]);
                    settings.put("allow.everyone.if.no.acl.found", word[2]);
                    authorizer = new StandardAuthorizer();
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.configure(settings);
                    authorizer.completeInitialLoad();
                }
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(word[1]),
                    word[3],
                    PatternType.valueOf(word[2]),
                    word[4],
                    word[5],
                    AclOperation.valueOf(word[6]),
                    AclPermissionType.valueOf(word[7])));
                case "may" -> {
                    Action action = new Action(
                        AclOperation.valueOf(word[3]),
                        new ResourcePattern(ResourceType.valueOf(word[4]), word[5], PatternType.LITERAL),
                        1, false, false);
                    tell(authorizer.authorize(asked(word), List.of(action)).get(0));
                }
                case "may-some" -> tell(authorizer.authorizeByResourceType(
                    asked(word), AclOperation.valueOf(word[3]), ResourceType.valueOf(word[4])));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    static Asked asked(String[] word) throws Exception {
        return new Asked(SecurityUtils.parseKafkaPrincipal(word[1]), InetAddress.getByName(word[2]));
    }

    static void tell(AuthorizationResult result) {
        System.out.println(result == AuthorizationResult.ALLOWED ? "allowed" : "denied");
    }
}
