"""The rules of a project that names none: commands after which there is nothing left to ask about.

A rule belongs here only when the command destroys a system or a home, or takes the machine away, and nobody means
it in daily work. What is merely risky (a forced push, a script from the network) is for approvals, or for a rule of
the project's own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """``pattern`` is a regular expression, searched in the normal form of each simple command."""

    name: str
    pattern: str
    description: str = ""
    enabled: bool = True


# A directory whose loss ends the machine or the user's work; with any ending that means the same.
_PRECIOUS = (
    r"(?:/+(?:(?:bin|boot|dev|etc|home|lib(?:32|64|x32)?|opt|proc|root|run|sbin|sys|usr|var|Applications|Library"
    r"|System|Users|usr/(?:bin|lib|local|sbin|share)|var/lib)(?=[/ ]|$))?|~[\w.-]*|\$HOME)"
)
_WHOLE = rf"(?<= ){_PRECIOUS}(?:/|\.{{1,2}}(?=/|\*| |$)|\*|\.\*)*(?: |$)"
_RECURSIVE = r"(?= (?:.* )?(?:-[a-zA-Z]*[rR]|--r))"
# Tests of find that leave nothing out of a kind: with them it still goes through all of it.
_EVERYTHING = r"(?:-(?:(?:min|max)depth \d+|depth|d|xdev|mount|print0?|type \S+|noleaf|ignore_readdir_race) )*"
_DISK = r"/dev/(?:disk|dm-|hd|loop|mapper/|md|mem$|kmem$|mmcblk|nvme|sd|sr|vd|xvd|rdisk)"

FACTORY_RULES: tuple[PolicyRule, ...] = (
    PolicyRule(
        "delete-system",
        rf"^rm{_RECURSIVE}.*{_WHOLE}"
        rf"|^find (?:-\S+ )*(?:[^-\s]\S* )*?{_PRECIOUS}(?:/|\.(?=/| )|\*)* (?:[^-\s]\S* )*{_EVERYTHING}"
        r"(?:-delete|-(?:exec|ok)(?:dir)? (?:\S+ )*?'?(?:\S*/)?(?:rm|shred|unlink) )",
        "deletes the root, a home or a system directory with all that is in it",
    ),
    PolicyRule(
        "change-system-permissions",
        rf"^(?:chmod|chown|chgrp){_RECURSIVE}.*{_WHOLE}",
        "changes mode or owner of everything below the root, a home or a system directory",
    ),
    PolicyRule(
        "overwrite-disk",
        rf"^dd .*\bof={_DISK}|(?:^| )(?:>|>>|&>|&>>|>\|) ?{_DISK}"
        rf"|^(?:mkfs(?:\.\w+)?|mke2fs|mkswap|wipefs|blkdiscard|shred|tee|cp|mv|cat) .*(?<= ){_DISK}\S*$",
        "writes over a disk or its file system",
    ),
    PolicyRule(
        "fork-bomb",
        r"^function \S+ spawns itself$",
        "starts copies of itself until the machine stops answering",
    ),
    PolicyRule(
        "stop-machine",
        r"^(?:shutdown|reboot|poweroff|halt)\b(?!.* (?:--help|--version|-c)(?: |$))"
        r"|^(?:init|telinit) [06](?: |$)|^systemctl (?:-\S+ )*(?:poweroff|reboot|halt|kexec)\b",
        "stops or restarts the machine",
    ),
    PolicyRule(
        "kill-everything",
        r"^kill (?:.* )?-1$|^killall5\b",
        "ends every process of the user, this one included",
    ),
)
