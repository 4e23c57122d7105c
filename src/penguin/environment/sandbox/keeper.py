"""What runs around a confined command so that it ends as it would outside: same exit, same death, same signals.

Bubblewrap reports a death by signal as an exit code, and dies of the signals that are meant for the command, with the
whole sandbox. So one process outside ignores those and repeats how the command ended, and one inside, which is the
command's parent and alone can know, tells it through a pipe. Perl, because both together start in a fifth of the time
that one Python takes (2 ms against 10), and it is wherever git is.
"""

from __future__ import annotations

_FOR_THE_COMMAND = "HUP INT QUIT TERM"

NOT_SET_UP = "the sandbox could not be set up; the command was not run"
"""Said on standard error, after bubblewrap's own words, with exit code 126."""

NAME = "penguin-keeper"
"""What both are called in a list of processes."""

OUTSIDE = f"""
$0 = '{NAME}';
my @signals = qw({_FOR_THE_COMMAND});
my @sandbox = splice(@ARGV, 0, shift); my @sockets = splice(@ARGV, 0, shift); my @inside = splice(@ARGV, 0, 3);
my ($told, $pid, $begun, %early);
# A signal that comes while the sandbox is being set up would be lost: it is sent once more when the command is there.
$SIG{{$_}} = sub {{ $early{{$_[0]}} = 1 }} for @signals;
{{
    @sockets = grep {{ -S }} @sockets;
    my $tell;
    {{ local $^F = 1023; pipe($told, $tell) or die "penguin: no pipe: $!\\n"; }}
    $pid = fork;
    defined $pid or die "penguin: {NOT_SET_UP}: $!\\n";
    if (!$pid) {{
        $SIG{{$_}} = 'IGNORE' for @signals;
        close $told;
        exec {{$sandbox[0]}} @sandbox, (map {{ ('--ro-bind', '/dev/null', $_) }} @sockets), '--',
            @inside, fileno($tell), @ARGV;
        warn "penguin: $sandbox[0]: $!\\n"; exit 126;
    }}
    close $tell;
    1 until defined sysread($told, $begun, 1);
    last if $begun ne '';
    waitpid($pid, 0);
    # A socket that has gone meanwhile is nothing to lay a mount on, and nothing to hide.
    redo if grep {{ !-S }} @sockets;
    warn "penguin: {NOT_SET_UP}\\n"; exit 126;
}}
$SIG{{$_}} = 'IGNORE' for @signals;
kill $_, -$$ for keys %early;
waitpid($pid, 0);
my ($status, $ready, $said) = ($?, '', '');
vec($ready, fileno($told), 1) = 1;
sysread($told, $said, 64) if select($ready, undef, undef, 0) > 0;
$status = $1 if $said =~ /^(\\d+)$/;
if (my $number = $status & 127) {{
    $SIG{{$_}} = 'DEFAULT' for @signals;
    kill $number, $$;
    exit 128 + $number;
}}
exit $status >> 8;
"""
"""Arguments: how many words start the sandbox, those words; how many sockets are to be hidden, those; the three words
that start the inner one; the command."""

INSIDE = f"""
$0 = '{NAME}';
my $tell;
open($tell, '>&=', shift) or die "penguin: no pipe: $!\\n";
my $pid = fork;
defined $pid or die "penguin: cannot fork: $!\\n";
if (!$pid) {{
    $SIG{{$_}} = 'DEFAULT' for qw({_FOR_THE_COMMAND});
    syswrite($tell, '.');
    exec {{$ARGV[0]}} @ARGV;
    warn "penguin: $ARGV[0]: $!\\n"; exit 127;
}}
waitpid($pid, 0);
my $status = $?;
syswrite($tell, $status);
exit($status & 127 ? 128 + ($status & 127) : $status >> 8);
"""
"""Arguments: the pipe's descriptor, the command."""


def kept(perl: str, sandbox: list[str], sockets: list[str], command: list[str]) -> list[str]:
    """The words that run ``command`` in ``sandbox`` (bubblewrap and its options) between the two keepers.

    ``sockets`` are hidden in it, as far as they are still there then.
    """
    words = [str(len(sandbox)), *sandbox, str(len(sockets)), *sockets]
    return [perl, "-e", OUTSIDE, *words, perl, "-e", INSIDE, *command]
