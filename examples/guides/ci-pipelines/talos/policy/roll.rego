# What a roll may be without a second look.
package talosupgrade

# Those of the pull or merge request; none where nobody says.
default labels := []

labels := data.labels

# So many nodes may reboot.
most := 10

changes contains change if {
	some change in input.resource_changes
	change.type == "talosupgrade_cluster"
	some action in change.change.actions
	action in {"create", "update"}
}

rolls contains found.values if {
	walk(input.prior_state.values, [_, found])
	found.type == "talosupgrade_preflight"
}

# Node -> role.
reboots(roll) := {step.node: step.role | some step in roll.steps; step.component == null}

# What has no data is not let through.
deny contains message if {
	some change in changes
	after := change.change.after
	looked := {roll | some roll in rolls; every key in ["context", "talos_version", "kubernetes_version"] { roll[key] == after[key] }}
	count(looked) == 0
	message := sprintf("%s: no talosupgrade_preflight has the same context and versions", [change.address])
}

deny contains message if {
	some roll in rolls
	count(reboots(roll)) > most
	message := sprintf("%d nodes reboot, and %d may: hold some of them", [count(reboots(roll)), most])
}

deny contains message if {
	some roll in rolls
	some node, "controlplane" in reboots(roll)
	not "control-plane" in labels
	message := sprintf("%s is a control plane: that needs the label control-plane", [node])
}

deny contains message if {
	some change in changes
	some check in change.change.after.preflight.skip
	message := sprintf("%s skips the check %s", [change.address, check])
}
