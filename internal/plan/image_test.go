// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// bootUnknown has a node not say how it booted.
func (s *scene) bootUnknown(name string) *scene {
	s.node(name).Machine.BootUnknown = true

	return s
}

// secure has a node boot with secure boot.
func (s *scene) secure(name string) *scene {
	s.node(name).Machine.SecureBoot = true

	return s
}

// installs changes the image that the machine configuration names.
func (s *scene) installs(name, reference string) *scene {
	s.node(name).Machine.Config.InstallImage = reference

	return s
}

func (s *scene) extended(name string, extensions ...string) *scene {
	s.node(name).Machine.Extensions = extensions

	return s
}

func TestImagesAreRefusedUnderTheCheckTheyFail(t *testing.T) {
	t.Parallel()

	factory := "factory.talos.dev/metal-installer/" + schematicA

	runFindings(t, map[string]findingCase{
		"an image that boots otherwise": {
			scene: newScene(3, 2).built(schematicA).secure("worker-1"), check: "secure-boot", severity: cluster.Permanent, node: "worker-1",
			says: []string{factory, "is without secure boot", "boots with secure boot", "Set installer_image to the installer with secure boot."},
		},
		"an image of another schematic": {
			scene: newScene(3, 2).built(schematicA).installs("worker-1", overrideB+":v1.12.6"), check: "schematic", severity: cluster.Permanent, node: "worker-1",
			says: []string{schematicA, schematicB},
		},
		"a node that does not say how it boots": {
			scene: newScene(3, 2).bootUnknown("worker-1"), check: "secure-boot", severity: cluster.Observed, node: "worker-1",
			says: []string{"does not say whether it booted with secure boot", generic + ":v1.13.4", "talosctl -n 10.0.1.1 get securitystate"},
		},
		"an unfinished node that runs and does not say how it boots": {
			scene: newScene(3, 2).entry("worker-1", cluster.PhaseIntent, "boot-worker-1").bootUnknown("worker-1"), check: "secure-boot", severity: cluster.Observed, node: "worker-1",
		},
	})

	own := []cluster.Within{cluster.Key("worker-2"), cluster.Field("installer_image")}

	runPaths(t, map[string]pathCase{
		"an override that boots otherwise": {
			scene: newScene(3, 2).secure("worker-2").gets("worker-2", factory), severity: cluster.Permanent, node: "worker-2",
			attribute: "node_overrides", within: own, says: []string{"boots with secure boot", "check secure-boot"},
		},
		"an override for another platform": {
			scene: newScene(3, 2).gets("worker-2", "factory.talos.dev/aws-installer/"+schematicA), severity: cluster.Permanent, node: "worker-2",
			attribute: "node_overrides", within: own, says: []string{"platform aws", "check installer-image"},
		},
	})
}

// on puts all nodes on a platform that they take from the UKI of their image.
func (s *scene) on(platform string) *scene {
	for i := range s.snapshot.Nodes {
		machine := s.snapshot.Nodes[i].Machine
		machine.Platform, machine.BootedWithUKI = platform, true
	}

	return s
}

// TestImagesForThePlatformAreChosenAndSaid: once, however many nodes get them.
func TestImagesForThePlatformAreChosenAndSaid(t *testing.T) {
	t.Parallel()

	const metal = "factory.talos.dev/installer/" + schematicA

	said := []string{generic + " is built for platform metal", "a node on aws", "factory.talos.dev/aws-installer/" + image.EmptySchematic, "Set installer_image, or image_factory_url"}

	runFindings(t, map[string]findingCase{
		"the generic image": {
			scene: newScene(3, 2).on("aws"), check: "installer-image", severity: cluster.Advice, says: append(said, "(worker-1, worker-2, cp-1, cp-2, cp-3)"),
		},
		"of one node": {
			scene: newScene(1, 0).on("aws"), check: "installer-image", severity: cluster.Advice, node: "cp-1", says: said,
		},
		"a factory's without a platform in its name": {
			scene: newScene(1, 0).built(schematicA).on("aws").installs("cp-1", metal+":v1.12.6"), check: "installer-image", severity: cluster.Advice, node: "cp-1",
			says: []string{metal + " is built for platform metal and factory.talos.dev/aws-installer/" + schematicA + " for platform aws"},
		},
		"a name that says nothing": {
			scene: newScene(1, 0).on("aws").installs("cp-1", "registry.example.com/talos:v1.12.6"), check: "installer-image", severity: cluster.Advice, node: "cp-1",
			says: []string{"registry.example.com/talos does not say which platform it is built for"},
		},
		"the generic image as an override": {
			scene: newScene(1, 0).on("aws").gets("cp-1", generic), check: "installer-image", severity: cluster.Permanent, node: "cp-1",
			says: []string{"runs on aws", "would lose it", "ends in /aws-installer/" + image.EmptySchematic},
		},
	})

	for name, scene := range map[string]*scene{
		"metal":          newScene(3, 2).on("metal"),
		"at the target":  newScene(3, 2).runs("1.13.4").on("aws"),
		"a version back": newScene(3, 2).on("aws").runs("1.8.4").aims("1.9.5"),
	} {
		if found, ok := find(scene.said(t).Findings, "installer-image"); ok {
			t.Errorf("%s: %s", name, found)
		}
	}
}

// TestNodesThatCannotBeUpgradedSayWhy: no waiting helps, and nothing else is wrong
// with them.
func TestNodesThatCannotBeUpgradedSayWhy(t *testing.T) {
	t.Parallel()

	vendor := func() *scene {
		s := newScene(3, 2)
		s.node("worker-1").Machine.Talos, s.node("worker-1").Machine.TalosTag = version.Version{}, "acme-2026.11"

		return s
	}

	runFindings(t, map[string]findingCase{
		"a version that is none": {
			scene: vendor(), check: "talos-api", severity: cluster.Permanent, node: "worker-1",
			says: []string{`worker at 10.0.1.1 runs Talos "acme-2026.11"`, "not a semantic version", `node_overrides = { "worker-1" = { hold = true } }`},
		},
		"a container": {
			scene: newScene(1, 1).on("container"), check: "versions", severity: cluster.Permanent,
			says: []string{"no upgrade where it runs in a container", "worker-1, cp-1", "leave talos_version out"},
		},
	})

	for name, scene := range map[string]*scene{
		"held": vendor().holds("worker-1"), "containers at the target": newScene(1, 1).on("container").runs("1.13.4"),
	} {
		if blocking := cluster.Blocking(scene.said(t).Findings); len(blocking) > 0 {
			t.Errorf("%s: %v", name, blocking)
		}
	}
}

// TestUnfinishedNodeGetsTheImageOfThePlatformThatItHad: what it runs on now is
// what went wrong.
func TestUnfinishedNodeGetsTheImageOfThePlatformThatItHad(t *testing.T) {
	t.Parallel()

	s := newScene(1, 1).entry("worker-1", cluster.PhaseRebooting, "boot-of-old").runs("1.13.2", "worker-1").aims("1.13.4").gets("worker-1", "factory.talos.dev/aws-installer/"+image.EmptySchematic)
	s.on("aws").node("worker-1").Machine.Platform = "metal"

	entry := s.snapshot.Journal.Entries["id-worker-1"]
	entry.Platform = "aws"
	*s.snapshot.Journal = s.snapshot.Journal.With("id-worker-1", entry)

	if found, ok := find(cluster.Blocking(s.said(t).Findings), "installer-image"); ok {
		t.Errorf("%s", found)
	}
}

// TestSkippedChecksAreWarningsAndTheRollGoesOn: a check that is skipped must not
// leave a node without an image.
func TestSkippedChecksAreWarningsAndTheRollGoesOn(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene *scene
		check string
		// image is the one that worker-1 then gets.
		image string
	}{
		"schematic": {newScene(3, 2).extended("worker-1", "drbd"), "schematic", generic + ":v1.13.4"},
		"schematic of an override": {
			newScene(3, 2).built(schematicA).gets("worker-1", "registry.example.com/talos"), "schematic", "registry.example.com/talos:v1.13.4",
		},
		"schematic of a node's own image": {
			newScene(3, 2).built(schematicA).installs("worker-1", overrideB+":v1.12.6"), "schematic", overrideB + ":v1.13.4",
		},
		"secure-boot": {
			newScene(3, 2).built(schematicA).secure("worker-1"), "secure-boot", "factory.talos.dev/metal-installer/" + schematicA + ":v1.13.4",
		},
		"secure-boot that is not told": {newScene(3, 2).bootUnknown("worker-1"), "secure-boot", generic + ":v1.13.4"},
		"alarms":                       {newScene(3, 2).alarmed(alarmNoSpace, "cp-1"), "etcd-alarms", generic + ":v1.13.4"},
		"size":                         {newScene(3, 2).sized("cp-1", 2040), "etcd-db-size", generic + ":v1.13.4"},
		"components":                   {newScene(3, 2).missing("cp-1", cluster.APIServer), "control-plane-components", generic + ":v1.13.4"},
		"disk":                         {newScene(3, 2).pressed("worker-1", "DiskPressure"), "disk-space", generic + ":v1.13.4"},
		"external":                     {newScene(3, 2).stage("cp-1", cluster.StageRebooting), "external-changes", generic + ":v1.13.4"},
		"two-members": {
			newScene(2, 2).runs("1.13.1"), "two-members", generic + ":v1.13.4",
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()

			refused, found := find(test.scene.said(t).Findings, test.check)
			if !found || refused.Severity == cluster.Advice || refused.Skipped {
				t.Fatalf("without skipping: %v", test.scene.said(t).Findings)
			}

			made := test.scene.skips(test.check).said(t)

			got, found := find(made.Findings, test.check)
			if !found || got.Severity != cluster.Advice || !got.Skipped || got.Found != refused.Found || got.Unknown != refused.Unknown {
				t.Errorf("skipped: %+v, want %+v as advice", got, refused)
			}

			if blocking := cluster.Blocking(made.Findings); len(blocking) > 0 {
				t.Errorf("it still stops: %v", blocking)
			}

			first := slices.IndexFunc(made.Steps, func(s plan.Step) bool { return s.Node == "worker-1" })
			if first < 0 || made.Steps[first].Image != test.image {
				t.Errorf("worker-1 is to get another image than %s:\n%s", test.image, render(made))
			}
		})
	}
}

// TestOneSkipAcceptsNothingElse: an image may fail several checks.
func TestOneSkipAcceptsNothingElse(t *testing.T) {
	t.Parallel()

	s := newScene(3, 1).built(schematicA).installs("worker-1", overrideB+":v1.12.6").secure("worker-1").skips("schematic")

	made := s.said(t)
	schematic, _ := find(made.Findings, "schematic")
	boot, _ := find(made.Findings, "secure-boot")

	if !schematic.Skipped || boot.Severity != cluster.Permanent || made.Steps[0].Image != "" {
		t.Errorf("plan:\n%s", render(made))
	}

	if made := s.skips("schematic", "secure-boot").said(t); len(cluster.Blocking(made.Findings)) > 0 || made.Steps[0].Image != overrideB+":v1.13.4" {
		t.Errorf("with both skipped:\n%s", render(made))
	}
}

// TestWhatCannotBeSkippedStays: firm checks, and what leaves nothing to go on with.
func TestWhatCannotBeSkippedStays(t *testing.T) {
	t.Parallel()

	lost := newScene(3, 2).runs("1.13.4").aims("1.14.0")
	lost.target.ImageFactory = "factory"

	var everything []string
	for _, check := range cluster.Checks() {
		everything = append(everything, check.Name)
	}

	for behaviour, test := range map[string]struct {
		scene *scene
		check string
	}{
		"an image that is none":         {newScene(3, 2).gets("worker-1", "Not An Image"), "installer-image"},
		"an install image that is none": {newScene(3, 2).installs("worker-1", ":NO:"), "installer-image"},
		"an image for another platform": {newScene(3, 2).gets("worker-1", "factory.talos.dev/aws-installer/"+schematicA), "installer-image"},
		"an install image for another platform": {
			newScene(3, 2).built(schematicA).installs("worker-1", "factory.talos.dev/aws-installer/"+schematicA+":v1.12.6"), "installer-image",
		},
		"another platform behind another way to boot": {
			newScene(3, 2).secure("worker-1").gets("worker-1", "factory.talos.dev/aws-installer/"+schematicA), "installer-image",
		},
		"corrupt data":                      {newScene(3, 2).alarmed("CORRUPT on member 1", "cp-1"), "etcd-alarms"},
		"a factory that is none":            {lost, "installer-image"},
		"a configuration that is not read":  {newScene(3, 2).unreadable("worker-1"), "component-images"},
		"a member that lags":                {newScene(3, 2).status("cp-1", func(e *cluster.EtcdStatus) { e.Index = 9000 }), "etcd-raft-lag"},
		"etcd that does not answer":         {newScene(3, 2).quiet("cp-1"), "etcd-quorum"},
		"a control plane that is not Ready": {newScene(3, 2).notReady("cp-1"), "nodes-ready"},
		"two members that refuse by themselves": {
			newScene(2, 2), "etcd-quorum",
		},
	} {
		made := test.scene.skips(everything...).said(t)

		// Skipping once more changes nothing.
		got, found := find(cluster.Blocking(test.scene.policy.Skip(made.Findings)), test.check)
		if !found || got.Skipped {
			t.Errorf("%s: %v", behaviour, made.Findings)
		}
	}

	two := newScene(2, 0).runs("1.13.1", "cp-1").skips("two-members").said(t)
	if blocking := cluster.Blocking(cluster.Policy{SkipChecks: map[string]bool{"two-members": true, "etcd-quorum": true}}.Skip(two.Findings)); len(blocking) != 1 || blocking[0].Node != "cp-2" || !strings.Contains(blocking[0].String(), "bring both to Talos 1.13 by hand") {
		t.Errorf("of two members the one below 1.13 refuses: %v", two.Findings)
	}
}

func (s *scene) quiet(name string) *scene {
	s.node(name).Etcd, s.node(name).EtcdError = nil, errAway

	return s
}

// TestWhatCouldNotBeFoundOutSaysSo: unknown is not the same as wrong.
func TestWhatCouldNotBeFoundOutSaysSo(t *testing.T) {
	t.Parallel()

	untold := newScene(3, 2)
	untold.node("worker-1").Machine.Talos = newScene(0, 0).target.Kubernetes

	unread := newScene(3, 2)
	unread.snapshot.Journal, unread.snapshot.JournalError = nil, errAway

	nameless := newScene(3, 2)
	nameless.node("worker-1").Machine.MachineID, nameless.node("worker-1").Kube.MachineID = "", ""

	for check, s := range map[string]*scene{
		"versions of talos-api":    untold,
		"pending-install":          unread,
		"uuid of pending-install":  nameless,
		"schematic":                newScene(3, 2).unreadable("worker-1"),
		"component-images":         newScene(3, 2).unreadable("worker-1"),
		"etcd-quorum":              newScene(3, 2).quiet("cp-2"),
		"secure-boot":              newScene(3, 2).bootUnknown("worker-1"),
		"control-plane-components": newScene(3, 2).missing("cp-2", cluster.Scheduler),
	} {
		name := check[strings.LastIndexByte(check, ' ')+1:]

		if finding, found := find(s.said(t).Findings, name); !found || !finding.Unknown || finding.Severity != cluster.Observed {
			t.Errorf("%s: %+v", check, finding)
		}
	}

	away, leaderless := newScene(3, 2), newScene(3, 2).quiet("cp-2")
	away.cutOff()

	// It does answer, and says what is wrong.
	leaderless.node("cp-2").EtcdError = cluster.ErrQuorum

	for check, s := range map[string]*scene{
		"talos-api":                newScene(3, 2).silent("worker-1"),
		"kubernetes-api":           away,
		"leader of etcd-quorum":    leaderless,
		"secure-boot":              newScene(3, 2).built(schematicA).secure("worker-1"),
		"control-plane-components": newScene(3, 2).ailing("cp-2", cluster.Scheduler, ""),
		"etcd-quorum":              newScene(3, 2).status("cp-2", func(e *cluster.EtcdStatus) { e.Leader = 0 }),
		"installer-image":          newScene(3, 2).gets("worker-1", "Not An Image"),
	} {
		finding, found := find(s.said(t).Findings, check[strings.LastIndexByte(check, ' ')+1:])
		if !found || finding.Unknown {
			t.Errorf("%s: %+v", check, finding)
		}

		if check == "installer-image" && !errors.Is(finding.Err, image.ErrReference) {
			t.Errorf("%s: %v", check, finding.Err)
		}
	}
}

// TestNodeThatTellsNeitherHowItBootsNorWithWhatGetsNoImage says both.
func TestNodeThatTellsNeitherHowItBootsNorWithWhatGetsNoImage(t *testing.T) {
	t.Parallel()

	s := newScene(3, 1).bootUnknown("worker-1")
	s.node("worker-1").Machine.Config.InstallImage = "Not An Image"

	got, found := find(s.said(t).Findings, cluster.CheckSecureBoot)
	if !found || !strings.Contains(got.Found, "does not say whether it booted with secure boot, and no image could be chosen") {
		t.Errorf("got %s", got)
	}
}
