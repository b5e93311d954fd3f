// SPDX-License-Identifier: MPL-2.0

package model

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/sim/history"
)

// EtcdMember is one entry of the member list.
type EtcdMember struct {
	ID uint64
	// Name is the machine's name, empty for a member that never started.
	Name, Address string
	Learner       bool
}

// EtcdStatus is what one member says about itself.
type EtcdStatus struct {
	Member uint64
	// Leader is 0 without one.
	Leader              uint64
	Index, Term         uint64
	Applied             uint64
	DBSize, DBSizeInUse int64
	Version             string
	Learner             bool
	Errors              []string
}

// EtcdAlarm is an alarm a member raised: NOSPACE or CORRUPT.
type EtcdAlarm struct {
	Member uint64
	Alarm  string
}

// EtcdMembers is the member list as a control plane sees it; it needs a leader.
func (w *World) EtcdMembers(ctx context.Context, name string) ([]EtcdMember, error) {
	var list []EtcdMember

	err := w.askEtcd(ctx, name, "EtcdMemberList", true, func(*node) {
		for _, n := range w.members() {
			list = append(list, EtcdMember{ID: n.etcd.id, Name: n.name, Address: n.address, Learner: n.etcd.learner})
		}
	})

	return list, err
}

// EtcdStatus is the local member's own view; it needs no leader.
func (w *World) EtcdStatus(ctx context.Context, name string) (EtcdStatus, error) {
	var status EtcdStatus

	err := w.askEtcd(ctx, name, "EtcdStatus", false, func(n *node) {
		const size, used = 48 << 20, 21 << 20

		now := w.clock.Now()
		status = EtcdStatus{
			Member: n.etcd.id, Leader: w.etcd.leader, Term: w.etcd.term,
			Index: w.etcd.at(now), Applied: n.etcd.applied(w.etcd, now),
			DBSize: size, DBSizeInUse: used, Version: "3.6.8", Learner: n.etcd.learner,
		}

		if w.etcd.leader == 0 {
			status.Errors = append(status.Errors, ErrNoLeader.Error())
		}

		if alarm := w.etcd.alarms[n.etcd.id]; alarm != "" {
			status.Errors = append(status.Errors, fmt.Sprintf("memberID:%d alarm:%s ", n.etcd.id, alarm))
		}
	})

	return status, err
}

// EtcdAlarms lists the alarms of the whole cluster; it needs a leader.
func (w *World) EtcdAlarms(ctx context.Context, name string) ([]EtcdAlarm, error) {
	var list []EtcdAlarm

	err := w.askEtcd(ctx, name, "EtcdAlarmList", true, func(*node) {
		for _, n := range w.members() {
			if alarm := w.etcd.alarms[n.etcd.id]; alarm != "" {
				list = append(list, EtcdAlarm{Member: n.etcd.id, Alarm: alarm})
			}
		}
	})

	return list, err
}

// SetEtcdAlarm raises an alarm of a member, found by name or address, or
// clears it when alarm is empty.
func (w *World) SetEtcdAlarm(name, alarm string) (err error) {
	w.locked(func() {
		var n *node

		if n, err = w.find(name); err != nil {
			return
		}

		if n.etcd == nil {
			err = fmt.Errorf("an alarm of %s: etcd %w", name, ErrNotControlPlane)

			return
		}

		w.etcd.alarms[n.etcd.id] = alarm
		w.touch(n)
	})

	return err
}

// ForfeitLeadership hands leadership to the next member and returns its name;
// the name is empty when this machine did not lead.
func (w *World) ForfeitLeadership(ctx context.Context, name string) (string, error) {
	var (
		heir    string
		refusal error
	)

	err := w.askEtcd(ctx, name, "EtcdForfeitLeadership", true, func(n *node) {
		if w.etcd.leader != n.etcd.id {
			return
		}

		next := w.heir(n)
		if next == nil {
			refusal = refuse("cannot forfeit leadership, only one member")

			return
		}

		w.lead(next)

		for _, other := range w.members() {
			if other.etcd == next {
				heir = other.name
			}
		}
	})

	return heir, errors.Join(err, refusal)
}

// lead makes a member the leader and says so.
func (w *World) lead(m *member) {
	w.etcd.elect(m)

	for _, n := range w.members() {
		w.touch(n)

		if n.etcd == m {
			w.record(n.name, history.KindEtcd, map[string]string{
				"member": memberID(m.id), "state": "healthy", "leader": memberID(m.id),
			})
		}
	}
}

// askEtcd runs a question to a machine's etcd under the lock.
func (w *World) askEtcd(ctx context.Context, name, api string, leader bool, question func(*node)) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, "etcd"); err != nil {
			return
		}

		switch {
		case n.etcd == nil:
			err = fmt.Errorf("%s %w", api, ErrNotControlPlane)
		case !n.etcd.running:
			err = ErrEtcdDown
		case leader && w.etcd.leader == 0:
			err = ErrNoLeader
		default:
			question(n)
		}
	})

	return err
}
