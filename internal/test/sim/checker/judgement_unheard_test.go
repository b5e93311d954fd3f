// SPDX-License-Identifier: MPL-2.0

package checker_test

// unheardJudgements are about calls whose answers got lost.
func unheardJudgements() []judgement {
	lost := func(wait float64) func() *tale {
		return func() *tale {
			t := held()
			t.put("cp-0", after)
			t.put("cp-1", after)
			t.look()
			t.rpc("cp-1", rpcReboot, "Unavailable")
			t.wait(wait)
			t.goDown("cp-0")

			return t
		}
	}

	return []judgement{
		{name: "S1: beside one that may be going down, as the answer got lost", want: breaks(s1, s2), tale: lost(600)},
		{name: "S1: beside one that was asked to and has not gone down", tale: lost(1000)},
		{name: "S12: a pull that was under way when the lease was lost, and given back by whoever took it", tale: func() *tale {
			t := held()
			t.acquire("run-2 (test)")
			t.release()
			t.rpc("worker-0", rpcPull, "OK")

			return t
		}},
		{name: "S12: a pull without there ever having been a lease", want: breaks(s12), tale: func() *tale {
			t := begin(3, 2)
			t.rpc("worker-0", rpcPull, "OK")

			return t
		}},
		{name: "S2: the last voter is no learner", tale: func() *tale {
			t := begin(1, 1)
			t.acquire("run-1 (test)")
			t.fault("cp-0", "etcd", "learner")
			t.wait(5)
			t.look()
			t.cordon("worker-0", true, "client")

			return t
		}},
	}
}
