// SPDX-License-Identifier: MPL-2.0

package regression_test

import (
	"slices"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/harness"
)

// row is something that was found.
type row struct {
	area area
	// symptom is what somebody would have seen, wrong is why.
	symptom, wrong string
	// scenario says how to get there: a seed where one decides about it.
	scenario string
	// seen is the last commit that had it: there the test fails.
	seen string
	// test gets there again, in a package below internal.
	test test
	// replay gets there through the harness; nil where it takes more than that.
	replay *replay
}

// test is a function of a package.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + "." + t.name }

// replay is a scenario of the harness. It fails the test of the rig where the bug
// is back.
type replay struct {
	setup harness.Setup
	run   func(*harness.Rig)
}

// area is what a finding is about.
type area string

// The areas, in the order in which people read of them.
const (
	areaInstall    area = "Installs and reboots"
	areaParallel   area = "Several nodes at a time"
	areaLease      area = "Lease and journal"
	areaPlan       area = "Plans and checks"
	areaKube       area = "Kubernetes and its manifests"
	areaOperator   area = "Beside an operator"
	areaConnection area = "Connections"
	areaWords      area = "What is said"
	areaHarness    area = "The harness itself"
)

func areas() []area {
	return []area{areaInstall, areaParallel, areaLease, areaPlan, areaKube, areaOperator, areaConnection, areaWords, areaHarness}
}

func rows() []row {
	return slices.Concat(installRows(), parallelRows(), leaseRows(), planRows(), kubernetesRows(), operatorRows(), connectionRows(), wordRows(), harnessRows())
}

func engineTest(name string) test { return test{"engine", name} }
func planTest(name string) test   { return test{"plan", name} }
