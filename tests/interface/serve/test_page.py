"""The page as its users click through it, in a real browser where there is one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sim import run
from sim.config.readable import human_seconds
from sim.interface.serve.server import Server
from sim.interface.serve.states import base_of
from tests.interface.browser import chromium
from tests.interface.serve.test_server import running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running(Server(base_of("gpt3-175b-megatron", {}))) as made:
        yield made


class Film:
    """A page, what it has complained about, and what it shows."""

    def __init__(self, browser: Any, server: Server, at: str = "", **context: Any) -> None:
        self.troubles: list[str] = []
        viewport = {"width": 1440, "height": 900}
        self.page = browser.new_context(**{"viewport": viewport, **context}).new_page()
        self.page.on("console", self._logged)
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("request", self._requested)
        self.own = server.address
        self.page.goto(server.address + at)
        self.page.wait_for_selector("body[data-ready=yes]")

    def _logged(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(message.text)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.own, "data:", "blob:")):
            self.troubles.append(request.url)

    def settled(self) -> None:
        """Wait until the last change is answered and drawn."""
        self.page.wait_for_selector("body[data-asking=no]")

    def card(self, title: str) -> str:
        """The number under a title of a key figure."""
        card = self.page.locator("#headline .figures > div", has_text=title).first
        return str(card.locator("strong").inner_text())

    def fill(self, key: str, value: str) -> None:
        """Write into the field of a control, and leave it."""
        field = self.page.locator(f"[id='at-{key}']")
        field.fill(value)
        field.press("Tab")
        self.settled()

    def close(self) -> None:
        self.page.context.close()
        assert not self.troubles


@pytest.mark.long
def test_a_film_of_ten_clicks(browser: Any, server: Server) -> None:
    film = Film(browser, server)
    page = film.page
    film.settled()
    first = run("gpt3-175b-megatron")
    assert film.card("step time") == human_seconds(first.step_time_expected)
    assert page.locator("#chart-timeline canvas").count() >= 1

    film.fill("plan.microbatch", "2")  # 1: another value
    changed = film.card("step time")
    assert changed != human_seconds(first.step_time_expected)
    assert "%" in page.locator("#headline .moved").first.inner_text()
    assert "plan.microbatch=2" in page.inner_text("#command")

    page.focus("[aria-label='pipeline (pp)']")  # 2: a slider, by the keyboard
    page.keyboard.press("ArrowLeft")
    film.settled()
    assert "plan.pp=4" in page.inner_text("#command")

    film.fill("plan.tp", "3")  # 3: an impossible layout
    assert page.is_visible("#fault")
    assert "does not divide" in page.inner_text("#fault")
    assert film.card("step time")  # the last answer stays

    page.click("#fault .ways button >> nth=0")  # 4: a way out
    film.settled()
    assert "does not divide" not in page.inner_text("#fault")
    assert page.inner_text("#command").split("plan.tp=")[1] != "3"

    for _ in range(3):  # 5: undo, all the way
        page.click("#undo")
        film.settled()
    assert "plan.microbatch=2" in page.inner_text("#command")
    assert "plan.pp" not in page.inner_text("#command")
    assert film.card("step time") == changed

    rows = page.locator("#tried tbody tr")  # 6: what was tried, compared
    assert rows.count() == 4
    rows.nth(1).get_by_role("button", name="Compare").click()
    page.wait_for_selector("#compared:not([hidden]) table")
    box, *buttons = page.evaluate(
        "[...document.querySelectorAll('#tried .scroll, #tried button')]"
        ".map(one => one.getBoundingClientRect().right)"
    )
    assert max(buttons) <= box
    assert "the pinned state" in page.inner_text("#compared")

    page.click("#pin")  # 7: pinned
    assert page.locator("#headline .moved").count() == 0

    page.click(".menu summary")  # 8: a file
    page.click("text=Scenario (TOML)")
    page.wait_for_selector("#shown[open]")
    assert "microbatch = 2" in page.inner_text("#shown-text")
    page.click("#shown-close")
    assert page.evaluate("document.activeElement.matches('.menu summary')")

    page.wait_for_selector("#limits table", timeout=60_000)  # 9: what limits it
    assert "Limited by" in page.inner_text("#limits")

    page.click("#layouts-ask")  # 10: better layouts, stopped
    page.wait_for_selector("#layouts-stop")
    page.click("#layouts-stop")
    page.wait_for_selector("#layouts-stop", state="detached", timeout=60_000)
    assert page.inner_text("#layouts .body")
    film.close()


def test_a_link_leads_to_its_state(browser: Any, server: Server) -> None:
    film = Film(browser, server, "#plan.microbatch=2&network.bandwidth=100+Gb%2Fs")
    film.settled()
    assert film.page.input_value("[id='at-plan.microbatch']") == "2"
    assert film.page.input_value("[id='at-network.bandwidth']") == "100 Gb/s"
    assert "network.bandwidth=100 Gb/s" in film.page.inner_text("#command")

    own = film.page.input_value("[id='at-plan.tp']")
    film.fill("plan.tp", "4")
    film.fill("plan.tp", own)  # the scenario's own value is no change
    assert "plan.tp" not in film.page.inner_text("#command")

    rows = film.page.locator("#tried tbody tr")
    tried = rows.all_inner_texts()
    assert len(tried) == 2
    film.page.reload()
    film.page.wait_for_selector("body[data-ready=yes]")
    assert rows.all_inner_texts() == tried
    film.close()


def test_drawings_of_the_state_before_are_dimmed_until_new_ones_are_there(
    browser: Any, server: Server
) -> None:
    film, held = Film(browser, server), list[Any]()
    film.settled()
    film.page.route("**/charts", lambda route: held.append(route))
    field = film.page.locator("[id='at-plan.microbatch']")
    field.fill("2")
    field.press("Tab")
    film.page.wait_for_function("document.querySelector('#command').textContent.includes('=2')")
    assert film.page.locator("#drawn.stale").count() == 1
    while not held:
        film.page.wait_for_timeout(20)
    held[0].continue_()
    film.settled()
    assert film.page.locator("#drawn.stale").count() == 0
    film.close()


def test_a_value_that_is_refused_is_corrected_in_place(browser: Any, server: Server) -> None:
    film = Film(browser, server)
    page = film.page
    film.settled()
    for key, text, mended in (
        ("topology.price.hour", "2.5", "2.5 USD/h"),
        ("network.bandwidth", "400", "400 Gb/s"),
    ):
        film.fill(key, text)
        assert "has no unit" in page.inner_text("#fault")
        field = page.locator(f"[id='at-{key}']")
        assert (field.input_value(), field.get_attribute("aria-invalid")) == (text, "true")
        page.click(f"#fault .ways button:has-text('{mended}')")
        film.settled()
        assert not page.is_visible("#fault")
        assert (field.input_value(), field.get_attribute("aria-invalid")) == (mended, "false")
    film.close()


@pytest.mark.long
def test_workers_that_share_updates_have_controls_and_an_answer(
    browser: Any, server: Server
) -> None:
    film = Film(browser, server, "#base=ps-ssp&sharing.steps=20")
    film.settled()
    assert film.card("time")
    assert film.page.input_value("[id='at-sharing.steps']") == "20"
    assert film.page.input_value("#base") == "ps-ssp"
    for row in ("right answers", "node0.nic1.down"):  # of tables in words
        assert film.page.inner_text("main").count(row) == 1
    film.page.select_option("[id='at-sharing.method']", "gossip")
    film.settled()
    assert film.page.is_visible("#fault") or film.card("time")
    film.close()


@pytest.mark.long
@pytest.mark.parametrize("name", ["two-jobs-one-network", "grpo-8b"])
def test_every_kind_of_scenario_has_figures_and_a_picture(browser: Any, name: str) -> None:
    with running(Server(base_of(name, {}))) as own:
        film = Film(browser, own)
        film.settled()
        assert film.page.locator("#headline .figures > div").count() > 1
        assert film.page.locator("#drawn svg").count() >= 1
        assert not film.page.is_visible("#layouts-ask")  # which only jobs of a plan have
        assert film.page.is_visible("#failures") == (name == "grpo-8b")
        film.close()


@pytest.mark.long
def test_all_fields_have_names_and_a_phone_scrolls_one_way(browser: Any, server: Server) -> None:
    phone = {"width": 390, "height": 844}
    film = Film(browser, server, viewport=phone, color_scheme="dark")
    film.settled()
    wide = film.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= phone["width"]
    nameless = film.page.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')].filter(one =>"
        " !(one.labels?.length || one.ariaLabel || one.textContent.trim())).map(one => one.id)"
    )
    assert nameless == []
    said = "[...document.querySelectorAll('[type=range]')].map(one => one.ariaValueText)"
    assert all(film.page.evaluate(said))
    assert json.loads(film.page.evaluate("JSON.stringify(document.title)")).startswith("gpt3")
    film.close()
