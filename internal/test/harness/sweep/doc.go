// SPDX-License-Identifier: MPL-2.0

// Package sweep is the exhaustive crash sweep over the engine's ports. The package has only tests. A scenario is an
// upgrade of a simulated cluster; a unit is a scenario with at most one node fault; a case is a unit whose first run
// is struck at one call in one way. Every call of every unit is struck. A read is struck once, because a process can
// only die there. A call that changes something is struck in four ways: the process dies before the call or after it,
// or lives and does not learn that the call was carried out, or that it was not; and in a fifth way, in the middle of
// the call, if the call takes time. After the crash a new engine runs with the fault still in force, the fault is
// lifted, and another run has to end at the target with nothing left behind. The checker judges every event, and one
// more run must not change anything.
//
// How much of that is done depends on the time: without faults, go test strikes every call that changes something in an
// upgrade of Talos and in a rollback by hand, and a sample of all other calls; with faults it strikes a sample. A soak
// strikes all of them, and then draws further clusters from further seeds until its time is over.
package sweep
