"""Topologies: the published clusters, routes and links, and what is refused."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import catalog
from sim.config.errors import InputError
from sim.hardware.cluster.cabled import CabledNetwork
from sim.hardware.cluster.fabrics.cables import NvLinkRing
from sim.hardware.cluster.host import HOST_LINKS, STORAGE_LINKS
from sim.hardware.cluster.link_names import link_name
from sim.hardware.cluster.network import ClusterNetwork, Link
from sim.hardware.cluster.networks.graph import CableGraph
from sim.hardware.cluster.networks.grids import FullMesh, Ring, Torus
from sim.hardware.cluster.slow_links import slowed
from sim.hardware.cluster.topology import Topology, load

NAMES = catalog.names("topologies")

# The table "Cluster presets" that comes with the measurements: GPUs of a node, then GB/s per GPU
# and direction within a node and between nodes.
PUBLISHED = {
    "dgx-a100-hdr": (8, 300, 25),
    "a100-vtrain": (8, 300, 12.5),
    "a100-40gb-hdr": (8, 300, 25),
    "megascale-a100": (8, 300, 25),
    "mosaic-a100-40gb": (8, 300, 25),
    "mosaic-a100-80gb": (8, 300, 25),
    "mosaic-h100": (8, 450, 50),
    "h100-p5-efa": (8, 450, 50),
    "dgx-h100-ndr": (8, 450, 50),
    "h100-grand-teton-roce": (8, 450, 50),
    "h100-96gb-500w": (8, 450, 50),
    "b200-node": (8, 900, None),
    "dgx-1-v100": (8, 150, 6.25),
    "dgx-2-v100": (16, 150, 6.25),
    "dgx-2h-v100": (16, 150, 6.25),
    # "Cluster names of these files", of the later tables.
    "dgx-b200": (8, 900, 50),
    "dgx-b300": (8, 900, 100),
    "gb200-nvl72": (72, 900, 50),
    "gb300-nvl72": (72, 900, 100),
    "h200-node": (8, 450, 50),
    "h20-node": (8, 450, 50),
    "mi300x-node": (8, 448, 50),
    "mi325x-node": (8, 448, 50),
    "mi350x-node": (8, 537.6, 50),
    "mi355x-node": (8, 537.6, 50),
    "l40s-pcie": (8, 32, 12.5),
    "jz-a100-80gb-opa": (8, 300, 6.25),
    "jz-v100-32gb-opa": (4, 150, 12.5),
    "jz-v100-16gb-opa": (4, 150, 12.5),
    "a100-roce-4x100g": (8, 300, 6.25),
    "ibm-a100-400g": (8, 300, 6.25),
    "ibm-h100-800g": (8, 450, 12.5),
    "gcp-a3-h100": (8, 450, 12.5),
    "h800-node": (8, 200, 50),
    "tpu-v4": (4096, 270, 6.25),
    "tpu-v5e": (256, 180, 3.125),
    "tpu-v5p": (8960, 540, 6.25),
    "tpu-v6e": (256, 360, 12.5),
    "tpu-v7x-ironwood": (9216, 600, 12.5),
}


def end_points(cluster: Topology, link: Link) -> tuple[set[object], set[object]]:
    """What a link starts from and what it leads to, as sets of places that mean the same."""
    match link:
        case ("port-up", gpu):
            return {("gpu", gpu)}, {("fabric", cluster.node_of(gpu))}
        case ("port-down", gpu):
            return {("fabric", cluster.node_of(gpu))}, {("gpu", gpu)}
        case ("nvlink", a, b):
            return {("gpu", a)}, {("gpu", b)}
        case ("nic-up", node, j):
            return at_nic(cluster, node, j), above(cluster, node, j)
        case ("nic-down", node, j):
            return above(cluster, node, j), at_nic(cluster, node, j)
        case ("pod-up", pod):
            return {("pod", pod)}, {"spine"}
        case ("pod-down", pod):
            return {"spine"}, {("pod", pod)}
        case ("edge", a, b):
            return at_vertex(cluster, a), at_vertex(cluster, b)
    raise AssertionError(link)


def at_nic(cluster: Topology, node: int, j: int) -> set[object]:
    """The GPUs that use a NIC; behind a PCIe switch the NIC hangs on the switch."""
    first = node * cluster.gpus_per_node
    peers = range(first, first + cluster.gpus_per_node)
    users: set[object] = {("gpu", gpu) for gpu in peers if cluster.nic_of(gpu)[1] == j}
    return users | {("fabric", node)}


def above(cluster: Topology, node: int, nic: int) -> set[object]:
    if isinstance(cluster.network, CabledNetwork):
        return {("vertex", cluster.network.vertex_of(node, nic))}
    return {("pod", cluster.pod_of(node))}


def at_vertex(cluster: Topology, vertex: int) -> set[object]:
    """Without NICs, the GPUs of a node are at its vertex themselves."""
    assert cluster.network is not None
    here: set[object] = {("vertex", vertex)}
    if not cluster.network.nics:
        first = vertex * cluster.gpus_per_node
        here |= {("gpu", gpu) for gpu in range(first, first + cluster.gpus_per_node)}
    return here


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Topology, int, int]:
    cluster = load(draw(st.sampled_from(NAMES)))
    gpus = st.integers(0, cluster.gpus - 1)
    return cluster, draw(gpus), draw(gpus)


@pytest.fixture
def grand_teton() -> Topology:
    return load("h100-grand-teton-roce")


def single(network: ClusterNetwork, gpus: int) -> Topology:
    """Nodes of one device each."""
    a100 = load("dgx-a100-hdr").device
    return Topology(name="test", device=a100, gpus=gpus, gpus_per_node=1, network=network)


def cabled(shape: type[CabledNetwork], **keys: Any) -> CabledNetwork:
    return shape(kind="roce", bandwidth=25e9, latency=1e-6, **keys)


class TestPresets:
    @pytest.mark.parametrize("name", PUBLISHED)
    def test_bandwidths_equal_the_published_table(self, name: str) -> None:
        per_node, intra, inter = PUBLISHED[name]
        cluster = load(name)
        assert cluster.gpus_per_node == per_node
        assert cluster.bandwidth(("port-up", 0)) == pytest.approx(intra * 1e9, rel=1e-12)
        if inter is None:
            assert cluster.network is None
        else:
            sharing = per_node / cluster.network.nics  # type: ignore[union-attr]
            assert cluster.bandwidth(("nic-up", 0, 0)) / sharing == pytest.approx(inter * 1e9)

    @pytest.mark.parametrize("name", NAMES)
    def test_every_number_of_a_preset_has_a_comment(self, name: str) -> None:
        lines = catalog.find("topologies", name).read_text(encoding="utf-8").splitlines()
        for above, line in zip(["", *lines], lines, strict=False):
            if any(f"{key} = " in line for key in ("bandwidth", "latency", "efficiency")):
                assert "#" in line or above.startswith("#"), line

    @pytest.mark.parametrize("name", NAMES)
    def test_payload_is_a_little_less_than_the_line_rate(self, name: str) -> None:
        cluster = load(name)
        small = cluster.with_gpus(min(cluster.gpus, 2 * cluster.gpus_per_node))
        for link in small.links:
            if link[0] in STORAGE_LINKS:  # as far away as whoever built it put it
                continue
            share = small.capacity(link) / small.bandwidth(link)
            assert 0.8 < share <= 1.0 if link[0] in HOST_LINKS else 0.9 < share < 1.0
            # Hosts on Ethernet may be in offices or homes; machines of one hall are close.
            far = cluster.network is not None and cluster.network.kind == "ethernet"
            usual = 1.1e-5 if link[0] in HOST_LINKS else 1e-5  # a copy to the host takes 10 us
            assert 0 <= small.latency(link) < (0.1 if far else usual)

    def test_pods_of_llama3_carry_a_seventh_upwards(self, grand_teton: Topology) -> None:
        assert grand_teton.pod_of(383) == 0
        assert grand_teton.pod_of(384) == 1
        assert grand_teton.pods == 8
        inside = 3072 * grand_teton.capacity(("nic-up", 0, 0))
        assert inside / grand_teton.capacity(("pod-up", 0)) == pytest.approx(7)


class TestTrays:
    """Jobs take equally many trays of as few racks as possible."""

    @pytest.mark.parametrize(
        ("gpus", "nodes", "each"),
        [(8, 1, 72), (72, 1, 72), (128, 2, 64), (144, 2, 72), (256, 4, 64), (576, 8, 72),
         (1536, 24, 64), (2496, 39, 64), (5120, 80, 64)],
    )  # fmt: skip
    def test_jobs_of_the_tables_take_64_or_72_of_a_rack(
        self, gpus: int, nodes: int, each: int
    ) -> None:
        cluster = load("gb200-nvl72").with_gpus(gpus)
        assert (cluster.nodes, cluster.gpus_per_node) == (nodes, each)
        assert cluster.network is not None
        assert cluster.network.nics == each, "a NIC for every GPU in use"

    def test_what_was_taken_does_not_bind_what_is_taken_next(self) -> None:
        cluster = load("gb200-nvl72")
        again = cluster.with_gpus(256).with_gpus(144)
        assert (again.nodes, again.gpus_per_node) == (2, 72)
        assert again.network == cluster.network

    def test_gpus_that_no_number_of_trays_gives_are_refused(self) -> None:
        with pytest.raises(InputError, match="74 GPUs do not fill nodes of 72"):
            load("gb200-nvl72").with_gpus(74)

    def test_a_job_does_not_take_more_racks_than_there_are(self) -> None:
        """4,096 GPUs are 64 of 64 racks, not of 57."""
        racks = load("gb200-nvl72", {"gpus": 57 * 72})
        assert [racks.with_gpus(gpus).nodes for gpus in (57 * 72, 57 * 64, 56 * 72)] == [57, 57, 56]
        with pytest.raises(InputError, match=r"57 nodes of 72, which give 3,648 .*gpus = 4608, or"):
            racks.with_gpus(4096)
        assert racks.changed(gpus=4608).with_gpus(4096).nodes == 64

    def test_a_tray_that_does_not_divide_a_node_is_refused(self) -> None:
        with pytest.raises(InputError, match="tray = 5 does not divide the 72 GPUs"):
            load("gb200-nvl72", {"tray": 5})


class TestRoutes:
    @settings(deadline=None)
    @given(pairs())
    def test_a_route_is_a_connected_way_from_source_to_target(
        self, drawn: tuple[Topology, int, int]
    ) -> None:
        cluster, source, target = drawn
        here: set[object] = {("gpu", source)}
        for link in cluster.route(source, target):
            start, end = end_points(cluster, link)
            assert start & here, (link, here)
            here = end
        assert ("gpu", target) in here

    @settings(deadline=None)
    @given(pairs())
    def test_the_way_back_uses_the_same_kinds_of_links(
        self, drawn: tuple[Topology, int, int]
    ) -> None:
        cluster, source, target = drawn
        turned = {"up": "down", "down": "up"}

        def kinds(route: tuple[Link, ...], back: bool) -> Counter[str]:
            names = (link[0].partition("-") for link in route)
            return Counter(
                kind + (turned.get(direction, "") if back else direction)
                for kind, _, direction in names
            )

        there, back = cluster.route(source, target), cluster.route(target, source)
        assert kinds(there, back=False) == kinds(back, back=True)

    @settings(deadline=None)
    @given(pairs())
    def test_every_link_of_a_route_exists_and_carries_something(
        self, drawn: tuple[Topology, int, int]
    ) -> None:
        cluster, source, target = drawn
        for link in cluster.route(source, target):
            assert cluster.parse_link(link_name(link)) == (link,)
            assert cluster.capacity(link) > 0

    @settings(deadline=None)
    @given(pairs())
    def test_messages_share_no_link_with_those_of_the_other_direction(
        self, drawn: tuple[Topology, int, int]
    ) -> None:
        cluster, source, target = drawn
        there, back = cluster.route(source, target), cluster.route(target, source)
        relayed = cluster.network is not None and cluster.network.rails
        if not relayed:  # a relay's port is used both ways, but not in the same direction
            assert not set(there) & set(back)

    def test_a_message_to_another_rail_changes_rails_inside_its_node(self) -> None:
        cluster = load("dgx-h100-ndr")
        assert cluster.route(0, 8) == (("nic-up", 0, 0), ("nic-down", 1, 0))
        assert cluster.route(0, 11) == (
            ("port-up", 0),
            ("port-down", 3),
            ("nic-up", 0, 3),
            ("nic-down", 1, 3),
        )

    def test_behind_a_pcie_switch_the_port_carries_network_traffic_too(self) -> None:
        route = load("example-pcie").route(1, 6)
        assert route == (("port-up", 1), ("nic-up", 0, 0), ("nic-down", 1, 0), ("port-down", 6))

    def test_pods_are_left_only_when_they_must_be(self, grand_teton: Topology) -> None:
        assert len(grand_teton.route(0, 3071)) == 2
        assert grand_teton.route(0, 3072) == (
            ("nic-up", 0, 0),
            ("pod-up", 0),
            ("pod-down", 1),
            ("nic-down", 384, 0),
        )

    def test_latencies_along_a_route_add_up_to_what_the_file_says(
        self, grand_teton: Topology
    ) -> None:
        def total(cluster: Topology, a: int, b: int) -> float:
            return sum(cluster.latency(link) for link in cluster.route(a, b))

        assert total(grand_teton, 0, 1) == pytest.approx(0.6e-6)
        assert total(grand_teton, 0, 8) == pytest.approx(2e-6)
        assert total(grand_teton, 0, 3072) == pytest.approx(4e-6)
        assert total(load("example-torus-2d"), 0, 15) == pytest.approx(2e-6)

    @pytest.mark.parametrize("link", [("edge", 0, 1), ("pod-up", 0), ("nvlink", 0, 1)])
    def test_a_link_of_another_shape_has_no_bandwidth(self, link: Link) -> None:
        with pytest.raises(ValueError, match=r"has no (link|cable)"):
            load("a100-roce-4n").bandwidth(link)

    def test_cables_of_a_dragonfly_have_their_own_rates(self) -> None:
        cluster = load("example-dragonfly", {"network.local_bandwidth": "800 Gb/s"})
        assert cluster.bandwidth(("edge", 0, 1)) == 100e9
        assert cluster.bandwidth(("edge", 3, 32)) == 200e9


class TestMeshNodes:
    def test_every_gpu_of_a_cube_mesh_has_six_nvlinks(self) -> None:
        node = load("dgx-1-v100").node
        assert node is not None
        assert [sum(row) for row in node.mesh(8)] == [6] * 8
        assert node.nvlink_bandwidth(8) == 25e9

    def test_part_of_a_cube_mesh_has_only_the_nvlinks_within_it(self) -> None:
        cluster = load("dgx-1-v100")
        rates = [cluster.with_gpus(n).bandwidth(("port-up", 0)) for n in (1, 2, 4, 8)]
        assert rates == [150e9, 25e9, 100e9, 150e9]

    def test_transfers_of_an_unspread_mesh_go_by_cable(self) -> None:
        cluster = load("dgx-1-v100", {"node.spread": False})
        assert not cluster.hierarchical
        assert cluster.route(0, 3) == (("nvlink", 0, 3),)
        assert cluster.route(0, 5) == (("nvlink", 0, 1), ("nvlink", 1, 5))
        assert cluster.route(8, 13) == (("nvlink", 8, 9), ("nvlink", 9, 13))
        assert cluster.bandwidth(("nvlink", 0, 3)) == 50e9

    def test_a_ring_divides_a_device_between_its_two_neighbours(self) -> None:
        cluster = load("example-nvlink-ring")
        assert cluster.bandwidth(("nvlink", 0, 1)) == 150e9
        assert cluster.route(0, 2) == (("nvlink", 0, 1), ("nvlink", 1, 2))

    def test_two_devices_in_a_ring_share_all_their_nvlinks(self) -> None:
        ring = NvLinkRing(bandwidth=300e9, latency=1e-6)
        assert ring.cable_bandwidth(0, 1, slots=2) == 300e9


class TestNics:
    def test_gpus_share_nics_in_order(self) -> None:
        cluster = load("dgx-2-v100")
        assert [cluster.nic_of(gpu) for gpu in (0, 1, 2, 15, 16)] == [
            (0, 0),
            (0, 0),
            (0, 1),
            (0, 7),
            (1, 0),
        ]

    def test_a_file_may_say_which_slot_uses_which_nic(self) -> None:
        slots = {"network.nics": 2, "network.nic_of_slot": [0, 1, 0, 1, 0, 1, 0, 1]}
        assert load("dgx-a100-hdr", slots).nic_of(11) == (1, 1)

    def test_a_cluster_of_one_node_has_no_nic(self) -> None:
        with pytest.raises(ValueError, match="b200-node has no NICs"):
            load("b200-node").nic_of(0)


class TestSizes:
    def test_65536_gpus_cost_nothing(self) -> None:
        cluster = load("dgx-h100-ndr", {"gpus": 65536})
        assert cluster.nodes == 8192
        assert cluster.route(5, 65535 - 2)[-1] == ("nic-down", 8191, 5)
        assert cluster.parse_link("node8191.nic7.up") == (("nic-up", 8191, 7),)
        assert cluster.hierarchical

    def test_every_switch_beyond_the_first_adds_its_latency(self) -> None:
        tree = load("example-fat-tree", {"network.radix": 16})  # 1 node a leaf, 8 a second tier
        (hop, first) = tree.network.hop, tree.network.latency
        assert tree.network.tiers(tree.whole) == (1, 4)
        inside, across = tree.delay(0, 8), tree.delay(0, 127)
        assert (inside - first, across - first) == pytest.approx((2 * hop, 4 * hop))

    def test_rings_of_nodes_leave_a_leaf_as_often_as_there_are_leaves(self) -> None:
        rails = load("dgx-h100-ndr").network  # 32 nodes a leaf, 64 of which a spine joins
        assert (rails.tiers(576), rails.tiers(4096)) == ((32,), (32, 1024))
        within, beyond = rails.beyond(32, 31, 576), rails.beyond(2, 40, 576)
        assert (within, beyond) == (0.0, pytest.approx(2 * rails.hop))
        assert rails.beyond(65, 64, 576) == pytest.approx(2 * rails.hop / 32)

    def test_more_gpus_than_a_cluster_has_are_refused(self) -> None:
        cluster = load("dgx-a100-hdr")
        with pytest.raises(InputError, match="but the cluster has 4,480; use at most 4480, set"):
            cluster.with_gpus(8).with_gpus(4488)
        larger = load("dgx-a100-hdr", {"gpus": 10_000})
        assert larger.with_gpus(8).with_gpus(4488).gpus == 4488

    def test_a_large_torus_is_not_enumerated(self) -> None:
        cluster = single(cabled(Torus, dims=(1000, 1000, 1000)), gpus=10**9)
        assert len(cluster.route(0, 10**9 - 1)) == 3

    def test_fewer_gpus_than_a_node_are_one_partial_node(self) -> None:
        cluster = load("dgx-a100-hdr").with_gpus(3)
        assert (cluster.nodes, cluster.gpus, cluster.gpus_per_node) == (1, 3, 8)
        assert cluster.bandwidth(("port-up", 2)) == 300e9
        assert sorted(cluster.links) == sorted(
            [(link, gpu) for gpu in range(3) for link in ("port-up", "port-down")]
            + [(link, 0, nic) for nic in range(8) for link in ("nic-up", "nic-down")]
            + [(link, 0, pair) for pair in range(2) for link in ("pcie-up", "pcie-down")]
            + [(link, 0) for link in ("cores", "memory", "nvme-up", "nvme-down")]
        )

    def test_nodes_must_be_full(self) -> None:
        with pytest.raises(InputError) as caught:
            load("dgx-a100-hdr").with_gpus(12)
        assert str(caught.value) == (
            "topology dgx-a100-hdr: 12 GPUs do not fill nodes of 8; use 8 or 16"
        )

    @pytest.mark.parametrize(
        ("name", "gpus", "message"),
        [
            ("b200-node", 16, "nothing joins its 2 nodes; use at most 8 GPUs"),
            ("example-torus-2d", 17, "room for 16 nodes, not 17; use at most 16 GPUs"),
            ("example-dragonfly", 584, "room for 72 nodes, not 73; use at most 576 GPUs"),
            ("dgx-a100-hdr", 0, "must be at least 1"),
        ],
    )
    def test_a_cluster_grows_only_as_far_as_its_network(
        self, name: str, gpus: int, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            load(name).with_gpus(gpus)


class TestSlowLinks:
    @given(st.sampled_from(NAMES), st.data())
    @settings(deadline=None, max_examples=50)
    def test_slowing_a_link_slows_that_link_only(self, name: str, data: st.DataObject) -> None:
        cluster = load(name)
        if cluster.gpus > 1024:
            cluster = cluster.with_gpus(min(4 * cluster.gpus_per_node, 1024))
        links = list(cluster.links)
        sick = data.draw(st.sampled_from(links))
        slower = slowed(cluster, sick, 3.0)
        for link in links:
            factor = cluster.capacity(link) / slower.capacity(link)
            assert factor == pytest.approx(3.0 if link == sick else 1.0)

    def test_a_name_without_direction_means_both(self) -> None:
        cluster = slowed(load("dgx-a100-hdr"), "node3.nic0", 2.0)
        healthy = cluster.capacity(("nic-up", 3, 1))
        assert cluster.capacity(("nic-up", 3, 0)) == healthy / 2
        assert cluster.capacity(("nic-down", 3, 0)) == healthy / 2

    def test_a_link_slowed_twice_is_slower_by_both(self) -> None:
        cluster = slowed(slowed(load("dgx-a100-hdr"), "gpu5.port", 2.0), "gpu5.port.up", 3.0)
        healthy = cluster.capacity(("port-up", 0))
        assert cluster.capacity(("port-up", 5)) == pytest.approx(healthy / 6)
        assert cluster.capacity(("port-down", 5)) == pytest.approx(healthy / 2)

    @pytest.mark.parametrize(
        ("text", "links"),
        [
            ("gpu5.port", (("port-up", 5), ("port-down", 5))),
            ("pod0", (("pod-up", 0), ("pod-down", 0))),
            ("pod7.down", (("pod-down", 7),)),
        ],
    )
    def test_names_of_links_read_as_expected(
        self, text: str, links: tuple[Link, ...], grand_teton: Topology
    ) -> None:
        assert grand_teton.parse_link(text) == links

    def test_edges_are_named_by_their_ends(self) -> None:
        cluster = load("example-torus-2d")
        assert cluster.parse_link("edge 0-1") == (("edge", 0, 1), ("edge", 1, 0))
        assert cluster.parse_link("edge 12>0") == (("edge", 12, 0),)

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            (
                "b200-node",
                "node0.nic0",
                "b200-node has no such link; it has gpu0.port to gpu7.port",
            ),
            ("dgx-a100-hdr", "node560.nic0", "it has .* node0.nic0 to node559.nic7"),
            ("dgx-a100-hdr", "node0.nic8", "no such link"),
            ("dgx-a100-hdr", "pod0", "no such link"),
            ("h100-grand-teton-roce", "pod8", "pod0 to pod7"),
            ("example-torus-2d", "edge 0-5", "no such link; it has edge 0-1 and others"),
            ("example-nvlink-ring", "nvlink 0-2", "no such link; it has nvlink 0-1 and others"),
            ("example-nvlink-ring", "nvlink 4-5", "no such link"),
            ("dgx-a100-hdr", "nic0", "is not the name of a link; write it like 'node3.nic0'"),
            ("dgx-a100-hdr", "gpu-1.port", "is not the name of a link"),
        ],
    )
    def test_an_unknown_link_is_refused_with_those_there_are(
        self, name: str, text: str, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            load(name).parse_link(text)

    @pytest.mark.parametrize("factor", [0.5, 0.0, -1.0, float("nan"), float("inf")])
    def test_no_factor_makes_a_link_faster_or_dead(self, factor: float) -> None:
        with pytest.raises(InputError, match=r"link 'gpu0\.port': factor = .* at least 1"):
            slowed(load("b200-node"), "gpu0.port", factor)


def faulty() -> Iterator[tuple[str, dict[str, object], str]]:
    """Topology, changes that spoil its file, what the message must say."""
    yield (
        "dgx-a100-hdr",
        {"node.bandwith": "1 GB/s"},
        "bandwith' for fabric = \"nvswitch\"; did you mean 'bandwidth'?",
    )
    yield "dgx-a100-hdr", {"network.bandwidth": "25"}, "'25' has no unit; write it like '400 Gb/s'"
    yield "dgx-a100-hdr", {"network.bandwidth": "25 us"}, "is in 'us', not in B/s"
    yield "dgx-a100-hdr", {"network.bandwidth": "0 GB/s"}, "must be a finite positive number"
    yield "dgx-a100-hdr", {"network.latency": "-1 us"}, "must be a finite"
    yield "dgx-a100-hdr", {"network.latency": float("nan")}, "finite"
    yield "dgx-a100-hdr", {"node.efficiency": 1.5}, "set efficiency at most 1"
    yield "dgx-a100-hdr", {"network.efficiency": float("nan")}, "efficiency = nan"
    yield "dgx-a100-hdr", {"network.nics": 0}, "network: nics = 0 must be positive"
    yield "dgx-a100-hdr", {"network.nics": -8}, "nics = -8 must be positive"
    yield (
        "dgx-a100-hdr",
        {"network.dims": [4, 4]},
        'for shape = "fat-tree" (it belongs to torus)',
    )
    yield (
        "dgx-a100-hdr",
        {"network.shape": "star"},
        'shape = "star" is unknown; known: dragonfly, fat-tree',
    )
    yield "dgx-a100-hdr", {"network.shape": "fat-treee"}, "did you mean 'fat-tree'?"
    yield "dgx-a100-hdr", {"network.shape": ["torus"]}, 'shape = ["torus"] is unknown'
    yield (
        "dgx-a100-hdr",
        {"network": {"kind": "roce"}},
        "network: shape is missing; known: dragonfly",
    )
    yield "dgx-a100-hdr", {"network": {"shape": "torus"}}, "network: kind is missing"
    yield "dgx-a100-hdr", {"network.oversubscription": 2.0}, "oversubscription needs pods"
    yield "dgx-a100-hdr", {"network.nic_of_slot": [0, 1]}, "nic_of_slot needs 8 entries"
    yield (
        "dgx-a100-hdr",
        {"network.nic_of_slot": [0, 8]},
        "nic_of_slot names a NIC that is not among 8",
    )
    yield "dgx-a100-hdr", {"gpus": 12}, "12 GPUs do not fill nodes of 8; use 8 or 16"
    yield "dgx-a100-hdr", {"gpus": -8}, "must be positive"
    yield "dgx-a100-hdr", {"device": "a100"}, "no device named 'a100'"
    yield (
        "dgx-a100-hdr",
        {"node.cables": [[0, 1, 1]]},
        'for fabric = "nvswitch" (it belongs to mesh)',
    )
    yield (
        "dgx-a100-hdr",
        {"node.spread": True},
        'for fabric = "nvswitch" (it belongs to full-mesh and mesh and ring)',
    )
    yield "dgx-1-v100", {"node.cables": [[0, 0, 1]]}, "cables join two different slots"
    yield "dgx-1-v100", {"node.cables": [[0, 9, 1]]}, "a cable leads to slot 9 of a node of 8 GPUs"
    yield "dgx-1-v100", {"node.cables": [[0, 1, 1]]}, "no path leads from gpu 0 to gpu 2; add a cab"
    yield "example-torus-2d", {"network.dims": [4, 0]}, "dims = [4, 0] must be positive"
    yield "example-torus-2d", {"network.dims": []}, "dims = [] must be positive"
    yield (
        "example-torus-2d",
        {"network.nics": 8},
        'for shape = "torus" (it belongs to dragonfly',
    )
    yield "example-torus-2d", {"network.dims": 4}, "network: dims = 4"
    yield "example-torus-2d", {"network.dims": [4, 0.5]}, "dims = 0.5 is not a whole number"
    yield (
        "example-torus-2d",
        {"gpus_per_node": 2},
        "nothing joins the 2 GPUs of a node; add a [node]",
    )
    yield "b200-node", {"gpus": 16}, "nothing joins its 2 nodes"
    yield "b200-node", {"degraded": [{"link": "pod0", "factor": 2.0}]}, "no such link"
    yield "b200-node", {"degraded": [{"link": "gpu0.port", "factor": -2.0}]}, "must be positive"
    yield "b200-node", {"node": 3}, "node = 3 is not a table; write a table with fabric = ..."
    yield "b200-node", {"name.of": 3}, "name in 'name.of' is not a table"


class TestBadFiles:
    @pytest.mark.parametrize(("name", "changes", "message"), list(faulty()))
    def test_a_fault_is_named_with_its_file(
        self, name: str, changes: dict[str, object], message: str
    ) -> None:
        with pytest.raises(InputError) as caught:
            load(name, changes)
        assert message in str(caught.value)
        assert f"{name}.toml" in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_a_cable_that_cannot_be_is_named_with_its_place(self) -> None:
        with pytest.raises(InputError) as caught:
            load("dgx-1-v100", {"node.cables": [[0, 1, 1], [1, "2", 1]]})
        assert str(caught.value).startswith("topologies/dgx-1-v100.toml (changed), node: cables")

    def test_an_unknown_topology_is_answered_with_the_nearest(self) -> None:
        with pytest.raises(InputError, match="no topology named 'dgx-a100'; did you mean 'dgx-"):
            load("dgx-a100")

    def test_an_unreachable_device_is_named(self) -> None:
        network = cabled(CableGraph, size=5, cables=((0, 1), (1, 2), (3, 4)))
        with pytest.raises(ValueError, match=r"no path .* to node 3 \(gpu 3\); add a cable to it"):
            single(network, gpus=5)


class TestGraphs:
    def test_the_way_on_a_graph_is_shortest_and_the_same_both_ways(self) -> None:
        square = cabled(CableGraph, size=4, cables=((0, 1), (1, 3), (0, 2), (2, 3)))
        cluster = single(square, gpus=4)
        assert cluster.route(0, 3) == (("edge", 0, 1), ("edge", 1, 3))
        assert cluster.route(3, 0) == (("edge", 3, 1), ("edge", 1, 0))

    @pytest.mark.parametrize("n", [1, 2, 3, 8])
    def test_a_full_mesh_has_a_cable_for_every_ordered_pair(self, n: int) -> None:
        cluster = single(cabled(FullMesh, size=n), gpus=n)
        assert len(list(cluster.links)) == n * (n - 1)
        assert all(len(cluster.route(0, b)) == 1 for b in range(1, n))

    @pytest.mark.parametrize(("n", "cables"), [(2, 2), (3, 6), (8, 16)])
    def test_a_ring_has_two_cables_a_node(self, n: int, cables: int) -> None:
        cluster = single(cabled(Ring, size=n), gpus=n)
        assert len(list(cluster.links)) == cables
        assert max(len(cluster.route(0, b)) for b in range(n)) == n // 2


def test_no_cluster_of_the_catalog_has_nics_that_its_pcie_links_do_not_fill() -> None:
    clusters = [cluster for cluster in map(load, NAMES) if cluster.network is not None]
    assert clusters
    for cluster in clusters:
        assert cluster.network is not None
        assert cluster.nic_bandwidth == cluster.network.bandwidth, cluster.name


def test_overrides_reach_network_and_node() -> None:
    base = load("dgx-a100-hdr")
    half = load(
        "dgx-a100-hdr", {"network.bandwidth": "100 Gb/s", "network.latency": "5 us", "gpus": 64}
    )
    assert half.capacity(("nic-up", 0, 0)) == base.capacity(("nic-up", 0, 0)) / 2
    assert half.latency(("nic-up", 0, 0)) == 2.5e-6
    assert half.gpus == 64
