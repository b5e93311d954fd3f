// SPDX-License-Identifier: MPL-2.0

package catalogue_test

// judgement is how the provider treats a fault.
type judgement string

const (
	// heals: it is waited for, up to a deadline, and the reason is reported.
	heals judgement = "heals: wait, up to a deadline"
	// final: waiting does not help, so the run fails at once.
	final judgement = "does not heal: fail now"
	// open: an observation has to show whether the call took effect before it is made again.
	open judgement = "outcome unknown: find out, never repeat blindly"
	// avoided: the provider does not do what leads to it.
	avoided judgement = "never done by us"
)

// row is one fault.
type row struct {
	// fault is what happens, seen what comes back over the wire.
	fault, seen string
	is          judgement
	// then is what the provider does.
	then string
}

// rows returns all faults in the order of their numbers, which begin with 1.
func rows() []row {
	return append(rowsOfNodes(), rowsOfClusters()...)
}

// rowsOfNodes returns the faults of the connection to a node, its images and its installer.
func rowsOfNodes() []row {
	return []row{
		{"A node refuses connections.", "The endpoint answers `Unavailable`, error while dialing.", heals, "Nothing was delivered, so a change had no effect. At the beginning the run is refused and names the node."},
		{"A node swallows packets.", "Silence up to a deadline; later the endpoint repeats what it remembers.", heals, "Each look ends in time. A call that the endpoint could not deliver arms nothing."},
		{"A node is back, its endpoint does not know yet.", "`Unavailable` for up to 15 s more.", heals, "Asked again, through the other endpoints first."},
		{"An image does not exist.", "`NotFound`, or a plain error that says so.", final, "One attempt; no node is disturbed; the error names node and image."},
		{"A registry is down, broken or has had enough.", "A plain error: before Talos 1.14 after 20 minutes of silence, from then on after one attempt.", heals, "The pull is repeated for five minutes, longer where `retry` says so, within 25 minutes, before any node is disturbed. A login that is missing and a reference that is none fail at once."},
		{"A node denies an image its signature.", "A plain error with the rule.", final, "Taken for a refusal: no repetition, no node disturbed, the rule is in the error."},
		{"A pull is slow.", "Progress frames that are all alike.", heals, "Only the image's name at the end counts; 25 minutes are the limit."},
		{"The image is gone when the installer is to run.", "`Internal`, not found in containerd store.", final, "A clean refusal, as all that fails before the installer's container is started: nothing is armed, no reboot. A node that was started anew, or dropped the image, pulls once more; otherwise the cordon is taken back. Pull and install name the same containerd, which has its images in memory."},
		{"The installer refuses the version.", "Its text in chunks, then a non-zero exit code, gRPC status OK.", final, "Its last lines are in the error. From Talos 1.14 on the codes 2 to 4 say that nothing was written: the cordon is taken back. With any other one the node counts as possibly armed and stays cordoned."},
		{"The installer crashes.", "A non-zero exit code, or `Internal`.", open, "With an exit code the run stops and the node counts as armed. Without one a reboot shows what happened."},
		{"Somebody else installs on the node.", "`FailedPrecondition`, already in progress.", final, "The run stops and says so; whether an installer is idle is asked without starting one."},
		{"Legacy: etcd has two members, or not all are well.", "A plain error before anything began, or `DeadlineExceeded` with its text.", final, "The guards refuse first. What the node itself refuses counts as never begun."},
		{"Legacy: the upgrade mutex is held.", "A plain error before anything began, or `DeadlineExceeded` with its text.", final, "Counts as never begun; the error says who to look for, and the next apply tries again."},
		{"etcd has no quorum.", "No leader, or no answer in time; the status of a member names leader 0.", heals, "Named as such. No step is taken; at the beginning the run is refused."},
		{"etcd has no space.", "The alarm NOSPACE; writes to Kubernetes fail with 500.", final, "The alarm is a finding that says how to clear it. A write without a verdict has an unknown outcome."},
		{"A member is a learner.", "Its status says so, everything else is refused.", heals, "Its status is enough to know it; while there is one nothing is disturbed."},
		{"A member is slow to rejoin.", "No etcd client, or the machine is not ready for etcd's sake.", heals, "Waited for up to `node_timeout`; no other node is touched; the error says what etcd said."},
		{"A node never returns.", "Unreachable for ever; its Node object turns Unknown.", heals, "Waited for up to `node_timeout`, then the run stops and names the node. It is finished by the next apply."},
		{"A node falls back by itself.", "Another boot ID, the old version.", final, "Recognised by both, recorded, named with its boot ID; its image is not tried again until told."},
		{"Legacy: the sequence fails before the install.", "An event with the code FATAL, then a reboot into the old system.", final, "The event's text is in the error; after the boot nothing is armed."},
	}
}

// rowsOfClusters returns the faults of connections, credentials, configurations and Kubernetes.
func rowsOfClusters() []row {
	return []row{
		{"Legacy: the sequence is locked.", "The call is acknowledged; an event says LOCKED, without the actor; nothing happens.", open, "No event within 90 s means that it never began, which the node's boot confirms. Where the event is seen, the node is at work on something else, such as an earlier request, and its next boot is waited for."},
		{"A reboot breaks the stream of events.", "EOF, reset, or a clean end.", open, "None of them is an end of the installer. The boot ID tells."},
		{"The endpoint is the node that reboots.", "As a node that refuses connections, for every call.", heals, "Other endpoints take over at once; the only one is found again within seconds of its return."},
		{"An endpoint is a worker.", "`PermissionDenied`, no request forwarding.", final, "About the endpoint, not the node: endpoints must be control planes. Others are tried first."},
		{"The connection is lost during the install.", "`Unavailable` or `Canceled`; the installer runs on.", open, "Waited for until the installer is idle, then rebooted; never installed twice without a boot in between."},
		{"The caller cancels, or its time is up.", "`Canceled` or `DeadlineExceeded`; the node goes on.", open, "The reason is kept. Back in 15 s, the lease released; the next apply finishes what the node has begun."},
		{"A certificate is expired or of another CA.", "`Unavailable`, like a node that reboots.", final, "Told by the text and by our own certificate; fails at once and says since when."},
		{"A clock is wrong.", "As an expired certificate; `time` is unmet.", heals, "Credentials that worked before and are valid by our clock are waited for. Others fail at once and speak of clocks. A machine that waits for its time server is waited for."},
		{"A role is missing.", "`PermissionDenied`, not authorized.", final, "Checked before anything is touched, naming the roles there are and the one that is needed."},
		{"An old node does not know a call.", "`Unimplemented`; for resources `PermissionDenied`.", final, "The API is chosen by each node's version. Resources that are unknown or not for us are left out."},
		{"Several nodes are named in one call.", "`InvalidArgument`; or OK with errors inside.", avoided, "Each call names one node. Should somebody add others, it is a refusal."},
		{"A node runs in a container.", "`FailedPrecondition`, container mode.", final, "A clean refusal: nothing is armed."},
		{"A configuration is refused, or comes at a bad time.", "`InvalidArgument` or `FailedPrecondition`.", heals, "What is busy is asked again, what is invalid fails at once. The mode never is a reboot."},
		{"Two write a configuration at once.", "Both succeed, the last one wins.", open, "Read before and after. Another writer is named, and the run stops."},
		{"An API server comes and goes.", "Refused, EOF, 502, 503, 429, a lost connection.", heals, "Other control planes' servers are asked. Reads are repeated, writes are not: their outcome is looked for."},
		{"A static pod never takes its new image.", "It is not Ready, or loops.", heals, "Waited for up to a deadline; the error names pod and reason; no other component is touched."},
		{"A kubelet is not ready.", "The service is down, or the Node is not Ready.", heals, "Waited for up to a deadline; the error says what it reports; no other node is started."},
		{"A budget blocks a drain.", "429 with the cause DisruptionBudget.", heals, "Asked again with pauses up to `drain.timeout`, then the run stops and names the pods; or deletes them where that was asked for."},
		{"A machine has no Node object.", "Discovery lists it, Kubernetes does not.", final, "It can be neither cordoned nor seen to be Ready: named, and nothing touched."},
		{"A disk is full.", "A plain error of the pull, no space left on device.", final, "Free space is checked first. A pull that finds none is not repeated, and no node is disturbed."},
		{"An upgrade is staged.", "Two boots, the first one of stage `installing`.", avoided, "Never asked for. A boot of that stage counts as unfinished, and is waited out."},
		{"A machine is stuck in its boot.", "It answers, and its conditions stay unmet.", heals, "Waited for up to `node_timeout`; the error lists the conditions and the last lines of the log."},
		{"Keepalive pings are too frequent.", "`ENHANCE_YOUR_CALM` after some 40 s of silence.", avoided, "Ours come every six minutes. A look whose connection is closed is repeated once; of a change the outcome is looked for."},
		{"Discovery lags.", "Members are missing, or long gone; versions are stale.", heals, "Kubernetes' list fills what is missing; versions come from the machines. A worker that only discovery still lists is named and left alone; a control plane refuses the run."},
		{"A machine comes back in maintenance mode.", "It answers with a certificate of its own making, which it has only there.", final, "The run ends within minutes of the boot and says so: what to look at, and not to give the machine a configuration before that is known. Nothing is installed by the next apply."},
		{"A machine comes back under another name.", "It is ready, and has no Node object of the name that it had.", final, "Told by its machine ID: the run ends and names both."},
		{"A worker is deleted in its turn.", "Its Node object is gone, and it does not answer.", final, "Given up after five minutes, and kept in the journal. The roll goes on with a warning if another node has shown that the new system boots; otherwise it ends, because it may be the image. A control plane is waited for."},
		{"Volumes stay attached after a drain.", "VolumeAttachments of the node whose pods are gone.", heals, "Waited for up to two minutes before the reboot, then a warning names them."},
	}
}
