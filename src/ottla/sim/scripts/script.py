"""Golden scripts: conversations of the replication protocol, written down with what they lead to.

A script is a text of blocks with blank lines between them. A block holds comments (`# …`), commands, and after
`----` what the commands told. `quiet` before a command mutes it. `run_script` plays the commands on a stage and
gives back the same text with what they told now: if the two differ, the protocol has changed, or the script is
wrong.

    # The leader has it, the follower not yet.
    produce 1 m0
    ----
    m0: not acknowledged yet
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.sim.engine.world import World
from ottla.sim.scripts.arguments import ScriptError
from ottla.sim.scripts.commands import ScriptCommands

RULE = "----"
QUIET = "quiet"
SEED = 1


@dataclass
class Block:
    number: int
    """Of its first line in the file."""
    lines: list[str] = field(default_factory=list)
    """Comments and commands, as they are written."""
    told: list[str] = field(default_factory=list)

    def render(self) -> str:
        return "\n".join([*self.lines, *([RULE, *self.told] if self.told else [])])


def parse(text: str) -> list[Block]:
    blocks: list[Block] = []
    block: Block | None = None
    in_output = False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            block, in_output = None, False
            continue
        if block is None:
            block = Block(number)
            blocks.append(block)
        if line == RULE:
            in_output = True
        else:
            (block.told if in_output else block.lines).append(line)
    return blocks


def run_script(text: str, name: str = "script") -> str:
    """The script with what its commands tell when they are played now. ScriptError if one cannot be."""
    blocks = parse(text)
    with World(SEED) as world:
        commands = ScriptCommands(world)
        for block in blocks:
            block.told = []
            for offset, line in enumerate(block.lines):
                if not line.startswith("#"):
                    try:
                        block.told += _run(commands, line)
                    except Exception as error:
                        where = f"{name}:{block.number + offset}: {line}"
                        raise ScriptError(f"{where}: {error}") from error
    return "\n\n".join(block.render() for block in blocks) + "\n"


def _run(commands: ScriptCommands, line: str) -> list[str]:
    words = line.split()
    quiet = words[0] == QUIET
    command, *arguments = words[1:] if quiet else words
    output = commands.run(command, arguments)
    return [] if quiet else output
