// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
)

// bootUnknown hides how a node booted.
func (s *scene) bootUnknown(name string) *scene {
	s.node(name).Machine.BootUnknown = true

	return s
}

// secure makes a node boot with secure boot.
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

func TestImage_RefusedUnderTheCheckItFails(t *testing.T) {
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

// on puts all nodes on a platform, which the UKI of their image sets.
func (s *scene) on(platform string) *scene {
	for i := range s.snapshot.Nodes {
		machine := s.snapshot.Nodes[i].Machine
		machine.Platform, machine.BootedWithUKI = platform, true
	}

	return s
}

// TestImage_ForThePlatformIsChosenAndSaid: it is said once, however many nodes get one.
func TestImage_ForThePlatformIsChosenAndSaid(t *testing.T) {
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

// TestImage_UnfinishedNodeGetsThatOfThePlatformThatItHad: the platform that it runs on now is the mistake.
func TestImage_UnfinishedNodeGetsThatOfThePlatformThatItHad(t *testing.T) {
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

func (s *scene) quiet(name string) *scene {
	s.node(name).Etcd, s.node(name).EtcdError = nil, errAway

	return s
}

// TestImage_NoneForANodeThatTellsNeitherBootNorImage: the finding names both.
func TestImage_NoneForANodeThatTellsNeitherBootNorImage(t *testing.T) {
	t.Parallel()

	s := newScene(3, 1).bootUnknown("worker-1")
	s.node("worker-1").Machine.Config.InstallImage = "Not An Image"

	got, found := find(s.said(t).Findings, cluster.CheckSecureBoot)
	if !found || !strings.Contains(got.Found, "does not say whether it booted with secure boot, and no image could be chosen") {
		t.Errorf("got %s", got)
	}
}
