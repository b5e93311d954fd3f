// SPDX-License-Identifier: MPL-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// corrupt is the alarm of a member whose data is not that of the others.
const corrupt = "CORRUPT"

// checkAlarms names every alarm once, at the control plane whose member raised it:
// all members tell of all of them. One of a member that nobody knows is at none.
func (p *planner) checkAlarms(controlPlanes []*subject) {
	raised := map[string][]string{}
	names := make([]string, 0, len(controlPlanes)+1)

	for _, teller := range controlPlanes {
		names = append(names, teller.Name)

		for _, alarm := range alarmsSeen(teller) {
			node := p.snapshot.AlarmedNode(alarm)
			if !slices.Contains(raised[node], alarm) {
				raised[node] = append(raised[node], alarm)
			}
		}
	}

	for _, node := range append(names, "") {
		if alarms := raised[node]; len(alarms) > 0 {
			p.find(alarmFinding(node, alarms))
		}
	}
}

// alarmFinding is the finding for the alarms of one member. Whether the room that
// is left will do is for people to weigh; of members whose data differ, a restart
// may leave those in charge that are wrong.
func alarmFinding(node string, alarms []string) cluster.Finding {
	finding := cluster.Finding{
		Check: cluster.CheckEtcdAlarms, Severity: cluster.Observed, Node: node,
		Found:  "etcd raised " + strings.Join(alarms, ", "),
		Remedy: "Resolve the cause (talosctl etcd status, talosctl etcd defrag against NOSPACE), then talosctl etcd alarm disarm.",
	}

	if slices.ContainsFunc(alarms, func(alarm string) bool { return strings.Contains(alarm, corrupt) }) {
		finding.Firm = true
		finding.Remedy = "Replace the member whose data is corrupt (take its node out of the cluster and let it join again with an empty disk), then talosctl etcd alarm disarm."
	}

	return finding
}

// alarmsSeen are the alarms that a control plane tells of. Those who may not list
// them still see them in the status.
func alarmsSeen(teller *subject) []string {
	if teller.Etcd == nil {
		return nil
	}

	seen := slices.Clone(teller.Etcd.Alarms)

	for _, reported := range teller.Etcd.Status.Errors {
		if cluster.IsAlarm(reported) {
			seen = append(seen, listedAlarm(reported))
		}
	}

	return seen
}

// listedAlarm spells an alarm from a member's status, "memberID:31 alarm:NOSPACE"
// with the ID in decimal (etcd's AlarmMember as text), as lists of alarms do. What
// reads otherwise stays as it is.
func listedAlarm(reported string) string {
	var (
		member uint64
		kind   string
	)

	reported = strings.TrimSpace(reported)
	if _, err := fmt.Sscanf(reported, "memberID:%d alarm:%s", &member, &kind); err != nil {
		return reported
	}

	return fmt.Sprintf("%s on member %x", kind, member)
}
