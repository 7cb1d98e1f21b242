"""Workers of a fork server, as data loaders are: it has made no range when it forks them, and they end by _exit."""

import multiprocessing
import sys

import nvtx


def work(tokens):
    for _ in range(tokens):
        with nvtx.annotate("decode", domain="model"):
            pass


if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    # What a server loads its workers have at once: of this program it is to have nothing.
    context.set_forkserver_preload([])
    workers = [context.Process(target=work, args=(tokens,)) for tokens in (3, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(sum(worker.exitcode for worker in workers))
