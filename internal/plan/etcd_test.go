// SPDX-License-Identifier: MPL-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// everywhere makes all control planes report an alarm, as etcd does.
func (s *scene) everywhere(alarm string) *scene { return s.alarmed(alarm, "cp-1", "cp-2", "cp-3") }

func (s *scene) reports(name, text string) *scene {
	return s.status(name, func(e *cluster.EtcdStatus) { e.Errors = append(e.Errors, text) })
}

// TestEtcd_AlarmsNameTheControlPlaneThatRaisedThem, whichever one reports them.
func TestEtcd_AlarmsNameTheControlPlaneThatRaisedThem(t *testing.T) {
	t.Parallel()

	for behaviour, test := range map[string]struct {
		scene *scene
		// want are the nodes, each with the alarm that it raised.
		want string
	}{
		"all tell of one":                       {newScene(3, 1).everywhere("NOSPACE on member 2"), "cp-2: NOSPACE on member 2"},
		"only another tells of it":              {newScene(3, 1).alarmed("NOSPACE on member 3", "cp-1"), "cp-3: NOSPACE on member 3"},
		"two of one member":                     {newScene(3, 1).everywhere("NOSPACE on member 2").everywhere("CORRUPT on member 2"), "cp-2: NOSPACE on member 2, CORRUPT on member 2"},
		"of two members":                        {newScene(3, 1).everywhere("NOSPACE on member 3").everywhere("NOSPACE on member 1"), "cp-1: NOSPACE on member 1; cp-3: NOSPACE on member 3"},
		"of a member that nobody knows":         {newScene(3, 1).everywhere("NOSPACE on member 1f"), ": NOSPACE on member 1f"},
		"of a silent member":                    {newScene(3, 1).everywhere("NOSPACE on member 2").quiet("cp-2"), ": NOSPACE on member 2"},
		"the status has a decimal ID":           {newScene(3, 1).identified("cp-2", 31).reports("cp-1", "memberID:31 alarm:NOSPACE "), "cp-2: NOSPACE on member 1f"},
		"the status repeats what is listed":     {newScene(3, 1).identified("cp-2", 31).everywhere("NOSPACE on member 1f").reports("cp-3", "memberID:31 alarm:NOSPACE "), "cp-2: NOSPACE on member 1f"},
		"one sees it in its status, one in all": {newScene(3, 1).identified("cp-2", 31).reports("cp-1", "memberID:31 alarm:NOSPACE ").alarmed("NOSPACE on member 1f", "cp-3"), "cp-2: NOSPACE on member 1f"},
		"the status says it in other words":     {newScene(3, 1).reports("cp-1", "memberID:x alarm:NOSPACE"), ": memberID:x alarm:NOSPACE"},
	} {
		var got []string

		for _, finding := range test.scene.all("etcd-alarms") {
			if finding.Severity == cluster.Observed {
				got = append(got, finding.Node+": "+strings.TrimPrefix(finding.Found, "etcd raised "))
			}
		}

		if said := strings.Join(got, "; "); said != test.want {
			t.Errorf("%s: %q, want %q", behaviour, said, test.want)
		}
	}
}

// identified gives the member of a control plane another ID.
func (s *scene) identified(name string, id uint64) *scene {
	return s.status(name, func(e *cluster.EtcdStatus) { e.MemberID = id })
}

// TestEtcd_CorruptDataCannotBeSkipped: with corrupt data, a restart may destroy what is intact.
func TestEtcd_CorruptDataCannotBeSkipped(t *testing.T) {
	t.Parallel()

	for alarm, firm := range map[string]bool{"NOSPACE on member 2": false, "CORRUPT on member 2": true, "CORRUPT on member 1f": true} {
		s := newScene(3, 1).everywhere("NOSPACE on member 2").everywhere(alarm).skips("etcd-alarms")

		blocked := len(cluster.Blocking(s.policy.Skip(s.said(t).Findings))) > 0
		if blocked != firm {
			t.Errorf("%s: %v", alarm, s.said(t).Findings)
		}

		for _, finding := range s.all("etcd-alarms") {
			if corrupt := strings.Contains(finding.Found, "CORRUPT"); finding.Firm != corrupt || finding.Skipped == corrupt {
				t.Errorf("%+v", finding)
			}
		}
	}

	reported := newScene(3, 1).reports("cp-2", "memberID:2 alarm:CORRUPT ").skips("etcd-alarms")
	if blocking := cluster.Blocking(reported.said(t).Findings); len(blocking) != 1 || !blocking[0].Firm || !strings.Contains(blocking[0].Remedy, "corrupt") {
		t.Errorf("in the status alone: %+v", blocking)
	}
}

// TestEtcd_NoAnswerIsUnknown: no answer is not the same as no trouble.
func TestEtcd_NoAnswerIsUnknown(t *testing.T) {
	t.Parallel()

	checks := []string{"etcd-members", "etcd-alarms", "etcd-raft-lag", "etcd-db-size"}

	for behaviour, test := range map[string]struct {
		scene *scene
		on    string
	}{
		"one":                 {newScene(3, 1).quiet("cp-2"), "could not be asked on cp-2"},
		"two":                 {newScene(3, 1).quiet("cp-1").quiet("cp-2"), "could not be asked on cp-1, cp-2"},
		"a silent machine":    {newScene(3, 1).silent("cp-3"), "could not be asked on cp-3"},
		"beside an open turn": {newScene(3, 1).quiet("cp-1").silent("cp-3").entry("cp-3", cluster.PhaseRebooting, "b"), "could not be asked on cp-1"},
		"all of them":         {newScene(1, 1).quiet("cp-1"), "could not be asked on cp-1"},
		"one that has no quorum": {func() *scene {
			s := newScene(3, 1).quiet("cp-2")
			s.node("cp-2").EtcdError = cluster.ErrQuorum

			return s
		}(), "could not be asked on cp-2"},
	} {
		for _, check := range checks {
			got := test.scene.all(check)
			if len(got) != 1 || !got[0].Unknown || got[0].Severity != cluster.Advice || got[0].Node != "" || !strings.HasSuffix(got[0].Found, test.on) {
				t.Errorf("%s: %s: %+v", behaviour, check, got)
			}
		}
	}

	stranger := newScene(3, 1).quiet("cp-2")
	stranger.members(func(m []cluster.EtcdMember) { m[2].Learner = true })

	if got := stranger.all("etcd-members"); len(got) != 1 || got[0].Unknown {
		t.Errorf("it says so already: %v", got)
	}

	for behaviour, s := range map[string]*scene{
		"all answer":          newScene(3, 1),
		"a turn is open":      newScene(3, 1).silent("cp-3").entry("cp-3", cluster.PhaseRebooting, "b"),
		"nothing is to do":    newScene(3, 1).runs("1.13.4").quiet("cp-2"),
		"it is a worker only": newScene(3, 2).silent("worker-1"),
	} {
		for _, check := range checks {
			if got := s.all(check); len(got) > 0 {
				t.Errorf("%s: %v", behaviour, got)
			}
		}
	}
}

func TestEtcd_TroubleStopsAnApply(t *testing.T) {
	t.Parallel()

	runFindings(t, map[string]findingCase{
		"an alarm is named once": {
			scene: newScene(3, 1).identified("cp-2", 0x1f).alarmed(alarmNoSpace, "cp-1", "cp-2", "cp-3"), check: "etcd-alarms", severity: cluster.Observed, node: "cp-2",
			says: []string{"etcd raised " + alarmNoSpace + " (check", "talosctl etcd alarm disarm"},
		},
		"an alarm in the status alone": {
			scene: newScene(3, 1).status("cp-2", func(e *cluster.EtcdStatus) { e.Errors = []string{"memberID:31 alarm:CORRUPT "} }), check: "etcd-alarms", severity: cluster.Observed,
			says: []string{"etcd raised CORRUPT on member 1f (check", "replace the member"},
		},
		"an alarm is no other error": {
			scene: newScene(3, 1).alarmed(alarmNoSpace, "cp-1", "cp-2", "cp-3").status("cp-2", func(e *cluster.EtcdStatus) { e.Errors = []string{"memberID:31 alarm:NOSPACE "} }),
			check: "etcd-alarms", severity: cluster.Observed,
		},
		"a member that reports an error": {
			scene: newScene(3, 1).status("cp-2", func(e *cluster.EtcdStatus) { e.Errors = []string{"etcdserver: request timed out"} }), check: "etcd-quorum", severity: cluster.Observed, node: "cp-2",
			says: []string{"reports: etcdserver: request timed out", "talosctl"},
		},
		"a member without a leader": {
			scene: newScene(3, 1).status("cp-3", func(e *cluster.EtcdStatus) { e.Leader = 0 }), check: "etcd-quorum", severity: cluster.Observed, node: "cp-3", says: []string{"follows no leader"},
		},
		"a member with another leader": {
			scene: newScene(3, 1).status("cp-1", func(e *cluster.EtcdStatus) { e.Leader = 0x2f }), check: "etcd-quorum", severity: cluster.Observed, node: "cp-1",
			says: []string{"do not agree on a leader", "000000000000002f", "0000000000000001"},
		},
		"a member that lags": {
			scene: newScene(3, 1).status("cp-2", func(e *cluster.EtcdStatus) { e.Index, e.Applied = 6000, 6000 }).
				status("cp-1", func(e *cluster.EtcdStatus) { e.Applied = 5000 }).status("cp-3", func(e *cluster.EtcdStatus) { e.Applied = 4999 }),
			check: "etcd-raft-lag", severity: cluster.Observed, node: "cp-3", says: []string{"applied entry 4999 of 6000", "talosctl -n 10.0.0.3 etcd status"},
		},
		"a learner that answers nothing else": {
			scene: func() *scene {
				s := newScene(3, 1)
				view := s.node("cp-2").Etcd
				view.Members, view.Status.Learner = nil, true

				return s
			}(), check: "etcd-members", severity: cluster.Observed, node: "cp-2", says: []string{"cp-2 of etcd is still a learner"},
		},
		"a learner is named at its own node": {
			scene: newScene(3, 1).members(func(m []cluster.EtcdMember) { m[1].Learner = true }), check: "etcd-members", severity: cluster.Observed, node: "cp-2", says: []string{"cp-2 of etcd is still a learner"},
		},
		"a member that has never started": {
			scene: newScene(3, 1).members(func(m []cluster.EtcdMember) { m[2].Name = "" }), check: "etcd-members", severity: cluster.Observed, node: "cp-3", says: []string{"has never started"},
		},
		"a database near its default quota": {
			scene: newScene(3, 1).sized("cp-2", 1850), check: "etcd-db-size", severity: cluster.Observed, node: "cp-2",
			says: []string{"1.81 GiB", "90 % of its quota of 2.00 GiB (the default of etcd)", "talosctl -n 10.0.0.2 etcd defrag"},
		},
		"a database near a quota of its own": {
			scene: newScene(3, 1).sized("cp-2", 470).quota("cp-2", 512), check: "etcd-db-size", severity: cluster.Observed, node: "cp-2", says: []string{"470 MiB", "91 % of its quota of 512 MiB"},
		},
		"a database that grows": {
			scene: newScene(3, 1).sized("cp-2", 1540), check: "etcd-db-size", severity: cluster.Advice, node: "cp-2", says: []string{"75 %"},
		},
		"a database that is large, but not for its quota": {
			scene: newScene(3, 1).sized("cp-2", 6200).quota("cp-2", 8192), check: "etcd-db-size", severity: cluster.Advice, node: "cp-2", says: []string{"6.05 GiB", "quota-backend-bytes"},
		},
	})
}
