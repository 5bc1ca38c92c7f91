"""Commands whose help is divided into sections, and options that know their Python parameter."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
INVOKED = f"{__name__}.invoked"  # key of the context of the running command in `Context.meta`


class Option(click.Option):
    """An option in a section of the help text.

    `parameter` is the Python parameter that receives the value, for error messages; by default it
    has the name of the option.
    """

    def __init__(self, *args: Any, parameter: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = "Options"
        self.parameter = parameter or self.name

    @property
    def flag(self) -> str:
        """The name on the command line, such as `--max-risk`."""
        return max(self.opts, key=len) if self.opts[0].startswith("-") else self.opts[0]


option = partial(click.option, cls=Option)


def section(title: str, *options: Decorator) -> Decorator:
    """Add options to a command, listed under `title` in its help."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for add in reversed(options):
            command = add(command)
            parameter = command.__click_params__[-1]  # type: ignore[attr-defined]
            parameter.section = title
        return command

    return decorate


class Command(click.Command):
    """A command whose options are listed in sections; those without a section come last."""

    def invoke(self, ctx: click.Context) -> Any:
        ctx.meta[INVOKED] = ctx
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                title = getattr(parameter, "section", "Options")
                sections.setdefault(title, []).append(record)
        sections["Options"] = sections.pop("Options", [])
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


command = partial(click.command, cls=Command)


class LazyGroup(click.Group):
    """Commands in sections; the module of a command is imported when the command is needed.

    `sections` maps titles to the modules of commands, by the names of the commands.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, str]] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections or {}
        self._modules = {name: at for names in self.sections.values() for name, at in names.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._modules:
            return None
        module = importlib.import_module(self._modules[cmd_name])
        found: click.Command = getattr(module, cmd_name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest name for an unknown command."""
        close = get_close_matches(args[0], self._modules, n=1)
        if args[0] not in self._modules and close and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.sections.items():
            commands = {name: self.get_command(ctx, name) for name in names}
            with formatter.section(title):
                formatter.write_dl([(n, summary_of(c)) for n, c in commands.items() if c])


def summary_of(command: click.Command) -> str:
    """The first paragraph of the help of a command, on one line."""
    return " ".join((command.help or "").split("\n\n")[0].split())


def in_flags(
    message: str, command: click.Command, given: Mapping[str, Any] | None = None, before: str = ""
) -> str:
    """An error message with flags of a command in place of Python parameters.

    Of two options for one parameter the one with a value in `given` is named. Names of other
    parameters stay; `before` is put before each flag.

    >>> budget = Option(["--budget"], type=int, parameter="n")
    >>> in_flags("`n=3` must be at least 5, as in `fit`.", Command("forget", params=[budget]))
    '--budget 3 must be at least 5, as in `fit`.'
    """
    values = given or {}
    known = [one for one in command.params if isinstance(one, Option)]
    known.sort(key=lambda one: values.get(str(one.name)) is not None)
    options = {one.parameter: one for one in known}

    def flag_of(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in options:
            return found[0]
        has_value = value is not None and not options[name].is_flag
        flag = f"{before}{options[name].flag}" + (f" {value.strip(chr(39))}" if has_value else "")
        return f"`{flag}`" if before else flag

    return re.sub(r"`(\w+)(?:=([^`]*))?`", flag_of, message)
