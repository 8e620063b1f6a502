"""Static files: collected at the start, under hashed names, compressed; and pages, compressed as well."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import brotli
import pytest
import rcssmin
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.template import Context, Template
from django.test import Client, override_settings

from accounts.models import User
from config.embedded.paths import StartError
from config.http.middleware import PageCompressionMiddleware
from config.static_files import CollectedFilesMiddleware, HashedStaticFiles, Stylesheets, collect_changed
from tests.product import ROOT

FIRST = "static/css/app.css"


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("collected") / "static"
    with override_settings(STATIC_ROOT=root):
        collect_changed()
    return root


def manifest(root: Path) -> dict[str, str]:
    names: dict[str, str] = json.loads((root / "staticfiles.json").read_text())["paths"]
    return names


def test_a_stylesheet_is_served_whole_under_a_name_made_of_its_content(collected: Path) -> None:
    name = manifest(collected)["css/app.css"]
    assert re.fullmatch(r"css/app\.[0-9a-f]{12}\.css", name)
    hashed = (collected / name).read_text()
    assert f'url("../{manifest(collected)["packages/dejavu-fonts-ttf/DejaVuMathTeXGyre.ttf"]}")' in hashed
    text = re.sub(r"\.[0-9a-f]{12}\.(ttf|woff2)", r".\1", hashed)
    assert "@import" not in text
    for part in (ROOT / "static" / "css").glob("*.css"):
        assert part.name in ("app.css", "admin.css") or rcssmin.cssmin(part.read_text()) in text


def test_scripts_and_stylesheets_are_stored_without_comments(collected: Path) -> None:
    names = manifest(collected)
    for name in ("css/app.css", "js/conversation.js", "js/live.js"):
        assert "/*" not in (collected / names[name]).read_text()


def test_a_stylesheet_keeps_its_nested_selectors(collected: Path) -> None:
    """Without its blank, `& :is(p, li)` would mean the element itself."""
    assert ".prose{& :is(p,li," in (collected / manifest(collected)["css/app.css"]).read_text()


def test_every_import_of_a_module_names_the_file_that_was_collected(collected: Path) -> None:
    names = manifest(collected)
    modules = {name: hashed for name, hashed in names.items() if name.startswith("js/")}
    imports = {
        f"js/{imported}"
        for hashed in modules.values()
        for imported in re.findall(r'"\./(.+?)"', (collected / hashed).read_text())
    }
    assert imports
    assert imports <= set(modules.values())


def test_files_are_there_in_both_compressions_and_only_by_their_hashed_names(collected: Path) -> None:
    names = manifest(collected)
    content = (collected / names["css/app.css"]).read_bytes()
    assert brotli.decompress((collected / f"{names['css/app.css']}.br").read_bytes()) == content
    assert gzip.decompress((collected / f"{names['css/app.css']}.gz").read_bytes()) == content
    assert not (collected / "css" / "app.css").exists()
    assert not list(collected.rglob("*.map"))


Serve = Callable[[str, str], HttpResponseBase]


@contextmanager
def serving(root: Path) -> Iterator[Serve]:
    """Yield a function that answers a path from the files in `root`, for a browser with these encodings."""
    with override_settings(STATIC_ROOT=root, STORAGES=_hashed()):
        serve = CollectedFilesMiddleware(lambda request: HttpResponse(status=404))  # type: ignore[no-untyped-call]

        def answer(path: str, encodings: str) -> HttpResponseBase:
            request = HttpRequest()
            request.method, request.path_info = "GET", path
            request.META["HTTP_ACCEPT_ENCODING"] = encodings
            return serve(request)

        yield answer


def answered(root: Path, path: str, encodings: str) -> HttpResponseBase:
    with serving(root) as serve:
        return serve(path, encodings)


def _hashed() -> dict[str, object]:
    return {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "config.static_files.HashedStaticFiles"},
    }


@pytest.mark.parametrize(
    ("accepted", "encoding"), [("gzip, deflate, br, zstd", "br"), ("gzip", "gzip"), ("identity", None)]
)
def test_hashed_names_are_kept_for_good_and_sent_as_the_browser_takes_them(
    collected: Path, accepted: str, encoding: str | None
) -> None:
    response = answered(collected, f"/static/{manifest(collected)['css/app.css']}", accepted)
    assert response.status_code == 200
    assert response.get("Content-Encoding") == encoding
    assert {"immutable", "public"} <= set(response["Cache-Control"].replace(" ", "").split(","))
    assert int(re.findall(r"max-age=(\d+)", response["Cache-Control"])[0]) >= 365 * 24 * 3600


def test_a_process_that_starts_while_another_collects_serves_what_stands_there(tmp_path: Path) -> None:
    """The other process may move a file at any moment: a broken link stands for such a file here."""
    (tmp_path / "app.css").write_text(".a {}")
    half = tmp_path / ".new-other" / "css"
    half.mkdir(parents=True)
    (half / "app.css").symlink_to("moved.css")
    assert answered(tmp_path, "/static/app.css", "identity").status_code == 200
    assert answered(tmp_path, "/static/.new-other/css/app.css", "identity").status_code == 404


def test_what_the_next_version_collects_is_served_by_a_process_of_this_one(tmp_path: Path) -> None:
    root, outside = tmp_path / "static", tmp_path / "key"
    (root / "css").mkdir(parents=True)
    outside.write_text("secret")
    with serving(root) as serve:
        assert serve("/static/css/app.0123456789ab.css", "br").status_code == 404
        (root / "css" / "app.0123456789ab.css").write_text(50 * ".a {}\n")
        (root / "css" / "app.0123456789ab.css.br").write_bytes(brotli.compress(50 * b".a {}\n"))
        response = serve("/static/css/app.0123456789ab.css", "br")
        assert (response.status_code, response["Content-Encoding"]) == (200, "br")
        for path in ("css", "css/", "../key", "css/../../key", "/etc/hostname", ".new-other/app.css", "a\0b", ""):
            assert serve(f"/static/{path}", "identity").status_code == 404


def test_what_is_up_to_date_is_left_alone_and_what_has_changed_is_made_anew(tmp_path: Path) -> None:
    root, more = tmp_path / "static", tmp_path / "more"
    (more / "css").mkdir(parents=True)
    page = more / "css" / "page.css"
    page.write_text('@import "part.css";\n')
    part = more / "css" / "part.css"
    part.write_text(".a {}\n")
    finders = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    with override_settings(STATIC_ROOT=root, STATICFILES_DIRS=[more], STATICFILES_FINDERS=finders):
        collect_changed()
        before = manifest(root)["css/page.css"]
        written = (root / "staticfiles.json").stat().st_mtime_ns
        collect_changed()
        assert (root / "staticfiles.json").stat().st_mtime_ns == written
        part.write_text(".b {}\n")
        collect_changed()
        after = manifest(root)["css/page.css"]
    assert before != after
    # A page that was loaded before the change still finds its own.
    assert [(root / name).read_text() for name in (before, after)] == [".a{}", ".b{}"]
    assert not list(root.glob(".new-*"))


def test_collectstatic_by_hand_leaves_nothing_to_do_for_the_start(tmp_path: Path, collected: Path) -> None:
    storage = HashedStaticFiles(location=tmp_path)  # has no annotations
    ours = FileSystemStorage(location=ROOT / "static")
    for _ in storage.post_process({"icons.svg": (ours, "icons.svg")}):
        pass
    assert (tmp_path / "originals.txt").read_text() == (collected / "originals.txt").read_text()


def test_while_developing_nothing_is_collected(tmp_path: Path) -> None:
    with override_settings(STATIC_ROOT=tmp_path, DEBUG=True):
        collect_changed()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_refused_with_what_to_do() -> None:
    with (
        override_settings(STATIC_ROOT=Path("/proc/static")),
        pytest.raises(StartError, match=r"manage\.py collectstatic"),
    ):
        collect_changed()


def test_a_file_that_was_not_collected_says_what_to_run(tmp_path: Path) -> None:
    storage = HashedStaticFiles(location=tmp_path, base_url="/static/")
    with pytest.raises(ValueError, match=r"css/app\.css .* run: manage\.py collectstatic"):
        storage.url("css/app.css")


def test_an_import_of_a_stylesheet_that_is_not_there_is_named() -> None:
    class Only(FileSystemStorage):
        def open(self, name: str, mode: str = "rb") -> ContentFile[bytes]:
            return ContentFile(b'@import "gone.css";\n')

    with pytest.raises(FileNotFoundError, match=r"css/gone\.css"):
        Stylesheets({"css/app.css": (Only(), "app.css")}).open("css/app.css")


def rendered(*names: str) -> list[str]:
    call = " ".join(f'"{name}"' for name in names)
    html = Template(f"{{% load modules %}}{{% modules {call} %}}").render(Context())
    return re.findall(r'(?:modulepreload" href|module" src)="/static/([^"]+)"', html)


def imports_of(name: str) -> set[str]:
    """Return the modules that a module imports, at any depth. The template tag uses another expression."""
    text = (ROOT / "static" / name).read_text()
    names = {f"js/{each}" for each in re.findall(r'^(?:import|}) ?.*"\./(.+?\.js)";$', text, re.MULTILINE)}
    return names.union(*(imports_of(each) for each in names))


def test_everything_a_page_imports_is_preloaded_once_and_before_its_scripts() -> None:
    modules = sorted(f"js/{path.name}" for path in (ROOT / "static" / "js").glob("*.js"))
    deep = max(modules, key=lambda name: len(imports_of(name)))
    *preloaded, script = rendered(deep)
    assert script == deep
    assert sorted(preloaded) == sorted(imports_of(deep))
    for name in modules:
        assert set(rendered(name)) == {name, *imports_of(name)}


def test_scripts_are_asked_for_after_the_stylesheet() -> None:
    """By a script of the page itself, which browsers do not run before they have it."""
    source = "{% load modules %}{% after_styles %}{% modules 'js/page.js' %}<b>\"</b>{% endafter_styles %}"
    request = HttpRequest()
    request.csp_nonce = "once"  # type: ignore[attr-defined]  # which a middleware puts there
    html = Template(source).render(Context({"request": request}))
    [written] = re.findall(r'^<script nonce="once">document\.write\((".*")\);</script>$', html, re.DOTALL)
    assert "<" not in written
    tags = Template("{% load modules %}{% modules 'js/page.js' %}").render(Context())
    assert json.loads(written) == tags + '<b>"</b>'


def test_a_module_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"js/gone\.js"):
        rendered("js/gone.js")


def compressed(response: HttpResponseBase, **headers: str) -> bool:
    request = HttpRequest()
    request.META.update({"HTTP_ACCEPT_ENCODING": "gzip", **headers})
    sent = PageCompressionMiddleware(lambda request: response).process_response(request, response)
    return sent.get("Content-Encoding") == "gzip"


def lines() -> Iterator[bytes]:
    yield b"data: {}\n\n" * 100


@pytest.mark.parametrize(
    ("kind", "site", "expected"),
    [
        ("text/html; charset=utf-8", "same-origin", True),
        ("text/html; charset=utf-8", "none", True),
        ("text/html; charset=utf-8", "cross-site", False),
        ("application/json", "same-origin", False),
    ],
)
def test_pages_are_compressed_unless_another_site_led_there(kind: str, site: str, expected: bool) -> None:
    assert compressed(HttpResponse("words " * 100, content_type=kind), HTTP_SEC_FETCH_SITE=site) is expected


def test_a_stream_of_events_is_never_held_back_to_be_compressed() -> None:
    assert not compressed(StreamingHttpResponse(lines(), content_type="text/event-stream"))


@pytest.mark.django_db
def test_two_answers_with_the_same_page_differ_in_length(client: Client) -> None:
    """The length of a page then does not reveal reflected text: BREACH needs many more tries."""
    client.force_login(User.objects.create_user("olga"))
    sizes = {len(client.get("/settings/", headers={"accept-encoding": "gzip"}).content) for _ in range(20)}
    assert len(sizes) > 1
