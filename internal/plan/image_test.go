// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/plan"
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

func (s *scene) quiet(name string) *scene {
	s.node(name).Etcd, s.node(name).EtcdError = nil, errAway

	return s
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
