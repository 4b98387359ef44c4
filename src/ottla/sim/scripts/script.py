"""Golden scripts: exchanges of the replication protocol, written down with their results.

A script is a text of blocks with blank lines between them. A block has comments (`# …`), commands, and after `----` the
output of the commands. `quiet` before a command drops its output. `run_script` runs the commands on a simulated cluster
and returns the same text with the output of now. If the two texts differ, the protocol has changed, or the script is
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
    """The line number of its first line in the file."""
    lines: list[str] = field(default_factory=list)
    """Comments and commands, as they are written."""
    output: list[str] = field(default_factory=list)

    def render(self) -> str:
        return "\n".join([*self.lines, *([RULE, *self.output] if self.output else [])])


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
            (block.output if in_output else block.lines).append(line)
    return blocks


def run_script(text: str, name: str = "script") -> str:
    """The script with the output of now. ScriptError, with the line, if a command cannot be run."""
    blocks = parse(text)
    with World(SEED) as world:
        commands = ScriptCommands(world)
        for block in blocks:
            block.output = []
            for offset, line in enumerate(block.lines):
                if not line.startswith("#"):
                    try:
                        block.output += run_line(commands, line)
                    except Exception as error:
                        where = f"{name}:{block.number + offset}: {line}"
                        raise ScriptError(f"{where}: {error}") from error
    return "\n\n".join(block.render() for block in blocks) + "\n"


def run_line(commands: ScriptCommands, line: str) -> list[str]:
    """What a command of a script tells; nothing after `quiet`."""
    words = line.split()
    quiet = words[0] == QUIET
    command, *arguments = words[1:] if quiet else words
    output = commands.run(command, arguments)
    return [] if quiet else output
