"""The check that pages of the site load nothing from elsewhere."""

from __future__ import annotations

from tools.check_site import main, remote_loads


def test_local_pages_pass(tmp_path):
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="_static/a.css"><a href="https://numpy.org">numpy</a>'
        '<img src="_static/a.png"><svg xmlns="http://www.w3.org/2000/svg"></svg>'
    )
    (tmp_path / "a.css").write_text("body { background: url(a.png) }")
    assert main(str(tmp_path)) == 0


def test_remote_scripts_styles_and_fonts_are_found(tmp_path, capsys):
    page = tmp_path / "a.html"
    page.write_text(
        '<script src="https://cdn.example/x.js"></script>'
        '<link rel="stylesheet" href="//x.example/a">'
    )
    style = tmp_path / "a.css"
    style.write_text("@font-face { src: url('https://fonts.example/a.woff2') }")
    assert remote_loads(page) == ["https://cdn.example/x.js", "//x.example/a"]
    assert remote_loads(style) == ["https://fonts.example/a.woff2"]
    assert main(str(tmp_path)) == 1
    assert capsys.readouterr().out.count(" loads ") == 3


def test_a_folder_without_pages_fails(tmp_path, capsys):
    assert main(str(tmp_path)) == 1
    assert "holds no pages" in capsys.readouterr().out
