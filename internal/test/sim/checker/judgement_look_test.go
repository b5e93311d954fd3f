// SPDX-License-Identifier: MPL-2.0

package checker_test

import (
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// lookJudgements are about looks at the Node objects by a watch: S3.
func lookJudgements() []judgement {
	// step installs on one worker, and looks at everything but the Node objects after it.
	step := func() *tale {
		t := begin(3, 2)
		t.acquire("run-1")
		t.put("worker-0", after)

		for _, node := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
			t.tell(node, history.KindRead, "what", "etcd")
		}

		return t
	}

	claim := func(t *tale, node, version string) {
		t.tell(node, history.KindWrite, "verb", "patch", "resource", "nodes", "name", node, "by", "client", "client", "run-1", "code", "200", "version", version)
	}

	deliver := func(t *tale, via, node, version string) {
		t.tell("", history.KindRead, "what", "nodes", "client", "run-1", "via", via, "object", node, "version", version)
	}

	down := func(t *tale) *tale {
		t.rpc("worker-0", rpcReboot, "OK")

		return t
	}

	told := func(events func(*tale)) func() *tale {
		return func() *tale {
			t := step()
			events(t)

			return down(t)
		}
	}

	return []judgement{
		{name: "S3: a watch delivered the claim", tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: a watch delivered what came after the claim", tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-1", "101")
		})},
		{name: "S3: a list of a cache contains the claim", tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "cache", "", "100")
		})},
		{name: "S3: the claim was not delivered", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
		})},
		{name: "S3: a watch delivered what is older than the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-1", "99")
		})},
		{name: "S3: another node says nothing of the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "watch", "worker-0", "99")
			deliver(t, "watch", "worker-0", "101")
		})},
		{name: "S3: a bookmark says nothing of the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "bookmark", "", "101")
		})},
		{name: "S3: a list of a cache is older than the claim", want: breaks(s3), tale: told(func(t *tale) {
			claim(t, "worker-1", "100")
			deliver(t, "cache", "", "99")
		})},
		{name: "S3: the claim of somebody else", want: breaks(s3), tale: told(func(t *tale) {
			t.tell("worker-1", history.KindWrite, "verb", "patch", "resource", "nodes", "name", "worker-1", "by", "other", "client", "run-1", "code", "200", "version", "100")
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: the claim was refused", want: breaks(s3), tale: told(func(t *tale) {
			t.tell("worker-1", history.KindWrite, "verb", "patch", "resource", "nodes", "name", "worker-1", "by", "client", "client", "run-1", "code", "404", "version", "100")
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: events without a claim", want: breaks(s3), tale: told(func(t *tale) {
			deliver(t, "watch", "worker-1", "100")
		})},
		{name: "S3: the claim counts, and not its delivery", want: breaks(s3), tale: func() *tale {
			t := begin(3, 2)
			t.acquire("run-1")
			t.look()
			claim(t, "worker-1", "100")
			t.put("worker-0", after)

			for _, node := range []string{"worker-0", "cp-0", "cp-1", "cp-2"} {
				t.tell(node, history.KindRead, "what", "etcd")
			}

			deliver(t, "watch", "worker-1", "100")

			return down(t)
		}},
	}
}
