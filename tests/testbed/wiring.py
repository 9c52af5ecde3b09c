"""The network of the testbed as lines of `ip` and `tc`: hosts on two bridges, shaped both ways.

Host i is 10.77.0.(i+1). Its `eth0` is shaped as the uplink, its port `p<i>` on its bridge as the
downlink. Each half of the hosts has a bridge; the trunk between them is shaped for some checks.
Each flow has a class of its own under the link's rate, so that flows share it evenly, and pure
acknowledgements pass ahead of data.
"""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

MTU = 4000
FRAME = MTU + 14  # with the Ethernet header, as the shaper counts it
RATE = 100e6 / 8  # B/s, as in topologies/testbed-4.toml and -8.toml
_QUEUE = 8 << 20  # bytes; nothing is ever dropped
_BURST = 0.72e-3  # seconds at full rate that a link may catch up on
_SYSCTLS = {
    "ipv4/tcp_congestion_control": "reno",  # any namespace may; nothing is lost here anyway
    "ipv4/tcp_no_metrics_save": "1",
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv6/conf/all/disable_ipv6": "1",
}


def address(host: int) -> str:
    """Its IP address."""
    return f"10.77.0.{host + 1}"


def _hardware_address(host: int) -> str:
    return f"02:00:00:4d:00:{host + 1:02x}"


def set_sysctls() -> None:
    """Set those of the caller's namespace."""
    for name, value in _SYSCTLS.items():
        path = Path("/proc/sys/net", name)
        if path.exists():
            path.write_text(value)


def pods(hosts: int) -> tuple[range, range]:
    """The hosts of each bridge."""
    half = -(-hosts // 2)
    return range(half), range(half, hosts)


def bridges(processes: Sequence[int]) -> list[str]:
    """For `ip -batch` in the switch's namespace; host i's end moves to that of processes[i]."""
    lines = [f"link add t0 mtu {MTU} type veth peer name t1 mtu {MTU}"]
    for pod in (0, 1):
        lines += [f"link add br{pod} type bridge stp_state 0", f"link set br{pod} mtu {MTU} up"]
        lines += [f"link set t{pod} master br{pod} up"]
    for host, process in enumerate(processes):
        pod = int(host in pods(len(processes))[1])
        lines += [
            f"link add p{host} mtu {MTU} type veth peer name eth0 mtu {MTU} "
            f"address {_hardware_address(host)} netns {process}",
            f"link set p{host} master br{pod} up",
        ]
    return lines


def interface(host: int, hosts: int) -> list[str]:
    """For `ip -batch` in a host's namespace."""
    neighbours = [
        f"neigh replace {address(peer)} lladdr {_hardware_address(peer)} dev eth0 nud permanent"
        for peer in range(hosts)
        if peer != host
    ]
    return [
        "link set lo up",
        f"addr add {address(host)}/24 dev eth0",
        "link set eth0 gso_max_segs 1 up",  # TCP hands over packets, never runs of them
        *neighbours,
    ]


def shaper(device: str, rate: float, peers: Iterable[int], by: str) -> list[str]:
    """For `tc -batch`: `rate` B/s, one class a peer, matched by its address as `by` (src, dst).

    Packets with less than 64 bytes of IP count as ACKs. The rates guaranteed to the classes must
    add up to less than the link's, or the classes exceed it for some milliseconds whenever several
    of them start.
    """
    peers = list(peers)
    burst = max(round(_BURST * rate), FRAME)
    share = f"rate {_bits(0.9 * rate / (len(peers) + 1))} ceil {_bits(rate)}"
    leaf = f"burst {FRAME} cburst {FRAME} quantum {FRAME}"
    lines = [
        f"qdisc replace dev {device} root handle 1: htb default 99",
        f"class add dev {device} parent 1: classid 1:1 htb rate {_bits(rate)} "
        f"ceil {_bits(rate)} burst {burst} cburst {burst} quantum {FRAME}",
        f"class add dev {device} parent 1:1 classid 1:2 htb rate {_bits(0.01 * rate)} "
        f"ceil {_bits(rate)} prio 0 {leaf}",
        f"class add dev {device} parent 1:1 classid 1:99 htb rate {_bits(0.01 * rate)} "
        f"ceil {_bits(rate)} prio 1 {leaf}",
        f"filter add dev {device} parent 1: protocol ip prio 1 u32 "
        "match u16 0x0000 0xffc0 at 2 flowid 1:2",
    ]
    for peer in peers:
        lines += [
            f"class add dev {device} parent 1:1 classid 1:{10 + peer} htb {share} prio 1 {leaf}",
            f"filter add dev {device} parent 1: protocol ip prio 2 u32 "
            f"match ip {by} {address(peer)}/32 flowid 1:{10 + peer}",
        ]
    classes = ["2", "99", *(str(10 + peer) for peer in peers)]
    return lines + [
        f"qdisc add dev {device} parent 1:{number} bfifo limit {_QUEUE}" for number in classes
    ]


def _bits(rate: float) -> str:
    return f"{round(8 * rate)}bit"


def unshaped(device: str) -> list[str]:
    """Take the shaper off."""
    return [f"qdisc del dev {device} root"]


def batch(command: str, lines: Iterable[str]) -> None:
    """Run lines of `ip` or `tc` in the caller's namespace. Raises with the line that failed."""
    done = subprocess.run(
        [command, "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")
