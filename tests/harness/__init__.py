"""Every block of code on every page runs, or is checked for what it is.

Blocks live in `docs/**/*.md`, `README.md`, `CONTRIBUTING.md` and in the docstrings of
`src/safepoint/**/*.py`. Each one is a test, which Sybil collects: `pages.py` finds and runs them,
`blocks.py` says what this project adds to a fence and allows beside one, `plugin.py` keeps the
evidence. When all have run, `census.py` compares what ran with what the HTML of the site shows.

How to write a block
--------------------
Three backticks and a language, closed at the same indent, indented with spaces. Callouts, tabs and
lists indent by four. Options go after the language or, for anything with a `data-` or a class, in
braces with the language first:

    ```python title="pay.py"
    ```{ .python data-raises="SealBroken: changed after" }

In README and CONTRIBUTING, which also have readers on a code host, the same words can stand in a
comment on the line above, so that the fence stays plain:

    <!-- block: data-check="make" -->

What each language means
------------------------
python   Runs. All blocks of a page share one module, `__main__`, and one folder, in order.
         The folder is a new one in the system's temporary folder. In what blocks print, these two
         read `/home/you` and `/tmp`.
         What it prints is stated by `#> ` lines below the `print`, or by the `text` block that
         follows. Several lines from one `print` may also stand in a bare triple-quoted string.
         `data-raises="Type"` expects that exception, and the `text` block that follows holds
         `Type: message`; or `data-raises="Type: part of the message"` says it all, with 12
         characters of the message or the whole of it. The last statement of the block raises it.
python .unsafe .no-copy
         Starts with `# UNSAFE: what it shows`. Runs by itself in another process, so it repeats
         its imports. `data-marker="file"` asserts that the payload left that file behind.
bash     `bash -euo pipefail` in the page's folder, to its last line. `data-exit="1"` expects that
         exit code, and the script may end earlier.
         `data-check="make"` runs nothing: it checks that each `make` target exists, and the syntax
         of `git`, `cd` and `pip` lines, one simple command on each. Such blocks are counted
         apart, as "checked only".
text     The output of the block before it. `...` may stand for a part, but never for most of it.
         `data-check="paths"`: a map of files; every name in it exists.
         `data-check="record"`: the record of one of the vectors that open.
         `data-check="subclasses" data-module="safepoint.core.errors"`: a drawn tree of classes.
sql      Runs on a real PostgreSQL, as the login `data-login="worker_1"`, in the page's database
         `checkpoints`, through `psql`; `postgres` is the superuser. All blocks of
         such a page reach it: `psql -U worker_1`, `"dbname=checkpoints user=worker_1"`. Passwords
         that a block gives to logins (`create role … password '…'`) are remembered for the others.
         In what blocks print the port reads 5432. With `.refused` each error is shown and the
         next statement runs; without it the first error ends the block. `data-exit="2"` expects
         that code of psql: 2 for a connection that is refused, 3 for the first error.
         `data-tls="db.internal"` on the first such block puts TLS in between for all other
         blocks, with a certificate for that name, and the authority's in `ca.pem`.
json, toml, ini, yaml
         Parsed.

`data-write="worker.py"` keeps a Python or data block as a file in the page's folder, for a block
below. `.refused` labels a block that raises, `.fix` one to copy. `.alone` runs a Python block in a
new module and an empty folder, which is what a whole file from `snippets/` wants. `.wrap` breaks
the long lines of a text or data block where the screen ends.

An include stands alone on its line: `--8<-- "pay.py:section"`, from `snippets/`. Sections are
marked by `# --8<-- [start:section]` and `# --8<-- [end:section]`. Outside a fence only an `.svg`
may be included.

`data-needs="modelscan"` leaves a block out where that module is not installed. It is counted in
public, and fails in CI.

HTML in a page
--------------
`<div markdown>`, `<figure markdown>` and `<figcaption markdown>`, with a class or an id before
`markdown`; `<a id="x">`, `<br>`, `<sub>`, `<sup>`, `<kbd>`; and `<!-- a comment -->` on one line,
without `--` or backticks in it. Inline code ends on the line on which it starts. In a docstring
`<name>` may stand for a name.

What is refused, with the page and the line: an unknown language or none, an option that nobody
knows, `~~~`, four backticks, a fence inside a fence or a block quote, other HTML, a style, tabs,
output that nothing checks, an exception whose message nothing checks, and a file in `docs/` that
becomes a page and is not `.md`.

After a run
-----------
`build/evidence.xml`, JUnit's format, says what ran in `make test`: page, line, language, digest,
outcome, time and versions; and how the tests ended that the rules stand on.
`pytest docs/guide.md` runs one page. `pytest tests/docs/test_snippets.py --update-examples`
rewrites the format and the `#>` lines of the files in `snippets/`.
`python -m tests.harness.callouts` fills in the callouts from `rules.toml`.
"""
