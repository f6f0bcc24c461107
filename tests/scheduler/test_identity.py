"""With ``slaq.identity: tls`` the certificate of a client says who it is, on real TLS."""

import shutil
import subprocess
from time import time

import dask
import pytest
from distributed import Client
from distributed.security import Security
from distributed.utils_test import captured_logger, inc
from driving import begun, gen_cluster, inside, let_end, name_a_task, start_plugin, until, wait_for

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting, NotAllowed
from dask_slaq.core.owners.usage import DAY_SECONDS

TLS = [("tls://127.0.0.1", 1)] * 2


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def security(tmp_path_factory):
    """Certificates of one authority: a function from the common name to Dask's security."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    place = tmp_path_factory.mktemp("certificates")
    ca, ca_key = place / "ca.pem", place / "ca.key"
    key = ["-newkey", "rsa:2048", "-nodes"]
    openssl("req", "-x509", *key, "-subj", "/CN=authority", "-keyout", ca_key, "-out", ca)

    def make(name):
        cert, mine = place / f"{name}.pem", place / f"{name}.key"
        if not cert.exists():
            subject = f"/CN={name}" if name else "/O=nobody"
            request = place / f"{name}.csr"
            openssl("req", *key, "-subj", subject, "-keyout", mine, "-out", request)
            sign = ["-CA", ca, "-CAkey", ca_key, "-CAcreateserial"]
            openssl("x509", "-req", "-in", request, *sign, "-out", cert)
        of = {
            f"tls_{role}_{what}": str(path)
            for role in ("client", "scheduler", "worker")
            for what, path in (("cert", cert), ("key", mine))
        }
        return Security(tls_ca_file=str(ca), require_encryption=True, **of)

    return make


def test_the_certificate_says_who_a_client_is(security):
    @gen_cluster(client=True, nthreads=TLS, scheduler="tls://127.0.0.1", security=security("ann"))
    async def test(c, s, a, b):
        settings = {"operators": ["carol"], "owners": {"ann": {"weight": 2}}}
        plugin = await start_plugin(c, s, identity="tls", **settings)

        def client_of(name):
            return Client(s.address, asynchronous=True, security=security(name))

        job = slaq.job("a", owner="ann@desk", client=c)
        with captured_logger("dask_slaq.scheduler.owners.identity") as log:
            async with client_of("bob") as bob, client_of("carol") as carol, job:
                assert inside(plugin).owners["a"] == "ann"
                assert log.getvalue() == ""  # ann@desk is ann
                for _ in range(2):
                    async with slaq.job("b", owner="carol", client=bob):
                        assert inside(plugin).owners["b"] == "bob"
                told = "a client says that it is 'carol'; its connection is of bob, which counts\n"
                assert log.getvalue() == told
                # Another name gives bob no other budget.
                await slaq.set_owner("bob", core_hours=1e-9, over="wait", client=carol)
                inside(plugin).accounts.spent.add(int(time() // DAY_SECONDS), "bob", 1.0)
                inside(plugin).accounts.tick()
                async with slaq.job("b", owner="eve", client=bob):
                    assert inside(plugin).queued == {"b"}
                with dask.config.set({"slaq.owner": "carol"}):
                    with pytest.raises(NotAllowed, match="'bob' may not change the policy"):
                        await slaq.set_policy("fair", client=bob)
                    by_hand = bob.scheduler.slaq_steer(job="a", client=c.id, what="pause")
                    for asked in (slaq.pause("a", client=bob), by_hand):
                        with pytest.raises(NotAllowed, match="'bob' may not pause job 'a' of ann"):
                            await asked
                    await slaq.pause("a", client=c)
                    await slaq.unpause("a", client=c)
                with captured_logger("dask_slaq.scheduler.requests") as log:
                    for said in (c.id, ""):
                        message = {"job": "a", "client": said, "loss": -1.0, "failed": True}
                        for op in ("slaq-report", "slaq-leave", "slaq-kind", "slaq-expect"):
                            bob._send_to_scheduler({"op": op, **message})
                    await until(log.getvalue)
                assert inside(plugin).reports == {"a": 0}
                # Who knows the proof of a client has its certificate as well, or is refused.
                proof = next(p for p, of in inside(plugin).proofs.items() if of.client == c.id)
                with pytest.raises(NotAllowed, match="is not one of bob, who asks for it"):
                    await bob.scheduler.slaq_close(name="a", proof=proof)
                assert inside(plugin).reports == {"a": 0}
                # Nor is what bob sends hers because it names a task of hers that runs.
                mine = await begun(s, c.submit(wait_for, "go", key="begun"))
                name_a_task(bob, "begun")
                outside = bob.map(inc, range(40), pure=False)
                await until(lambda: f"other:{bob.id}" in inside(plugin).owners)
                assert inside(plugin).owners[f"other:{bob.id}"] == "bob"
                await let_end(bob, outside)
                await mine
        async with client_of("") as nobody:
            with pytest.raises(NotAllowed, match="has no common name"):
                await slaq.job("n", client=nobody).__aenter__()

    test()


@gen_cluster(client=True, nthreads=[1])
async def test_without_tls_the_plugin_is_refused(c, s, a):
    with pytest.raises(InvalidSetting, match=r"can be reached without a certificate, at tcp://"):
        await start_plugin(c, s, identity="tls")
    assert "slaq_open" not in s.handlers
    await start_plugin(c, s)
    async with slaq.job("a", owner="ann", client=c):
        assert s.plugins["slaq"].jobs.owner["a"] == "ann"
