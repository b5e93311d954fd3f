// SPDX-License-Identifier: MPL-2.0

package report

import "github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"

// kind is what a step looks like in the picture: more of them than there are
// colours that one can tell apart would help nobody.
type kind struct {
	// Class is its style, Name what the legend says.
	Class, Name string
}

// kinds are all of them, in the order of the legend.
var kinds = [...]kind{
	{"gates", "gates"},
	{"snapshot", "etcd snapshot"},
	{"pull", "pull"},
	{"drain", "cordon and drain"},
	{"install", "install or configure"},
	{"reboot", "reboot or restart"},
	{"wait", "wait for health"},
	{"rollback", "roll back"},
}

// looks say how people call a step, and what it looks like.
var looks = [...]struct {
	step        cluster.NodeStep
	class, name string
}{
	{cluster.StepGates, "gates", "wait for the gates"},
	{cluster.StepSnapshot, "snapshot", "etcd snapshot"},
	{cluster.StepPull, "pull", "pull"},
	{cluster.StepCordon, "drain", "cordon"},
	{cluster.StepDrain, "drain", "drain"},
	{cluster.StepInstall, "install", "install"},
	{cluster.StepInstaller, "install", "wait for the installer"},
	{cluster.StepInstallImage, "install", "write the install image"},
	{cluster.StepConfigure, "install", "configure"},
	{cluster.StepApply, "install", "apply the manifests"},
	{cluster.StepLegacy, "reboot", "upgrade and reboot"},
	{cluster.StepReboot, "reboot", "reboot"},
	{cluster.StepRestart, "reboot", "restart"},
	{cluster.StepReturn, "reboot", "wait for it to boot"},
	{cluster.StepEtcd, "wait", "wait for etcd"},
	{cluster.StepReady, "wait", "wait for Ready"},
	{cluster.StepRollout, "wait", "wait for the rollout"},
	{cluster.StepUncordon, "wait", "uncordon"},
	{cluster.StepRollback, "rollback", "roll back"},
}

// lookOf is the style and the name of a step. One that is not known yet waits for
// something, and is called what the engine calls it.
func lookOf(step cluster.NodeStep) (class, name string) {
	for _, look := range &looks {
		if look.step == step {
			return look.class, look.name
		}
	}

	return "wait", string(step)
}
