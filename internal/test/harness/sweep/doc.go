// SPDX-License-Identifier: MPL-2.0

// Package sweep holds the exhaustive crash sweep over the engine's ports, and
// nothing that is not a test. A scenario is an upgrade of a simulated cluster; a
// unit is a scenario with at most one node fault; a case is a unit whose first
// run is struck at one call in one way. Every call of every unit is such a call.
// Reads are struck once, for there a process can only die. Calls that change
// something are struck in four ways: the process dies before the call or after it,
// or lives and does not learn that the call was carried out, or that it was not;
// and in a fifth one, in their middle, where they last. After the crash a fresh
// engine runs, with the fault still in force, the fault is lifted, and another run
// has to end at the target with nothing left behind. The checker judges every
// event of all that, and one more run must not change anything.
//
// How much of that is done depends on the time there is: go test strikes all
// calls without faults and a sample of the cross with faults; a soak does all of
// it, and further clusters, drawn from further seeds, until its time is over.
package sweep
