// SPDX-License-Identifier: MPL-2.0

package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
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
	// Leader is 0 if there is none.
	Leader              uint64
	Index, Term         uint64
	Applied             uint64
	DBSize, DBSizeInUse int64
	// Version is that of the server, Storage that of its data.
	Version, Storage string
	Learner          bool
	Errors           []string
}

// EtcdAlarm is an alarm a member raised: NOSPACE or CORRUPT.
type EtcdAlarm struct {
	Member uint64
	Alarm  string
}

// EtcdMembers returns the member list as the member of a control plane sees it. It needs a leader and a vote: Talos
// asks its own member (query_local) for a linearizable list, which etcd's learners do not serve.
func (w *World) EtcdMembers(ctx context.Context, name string) ([]EtcdMember, error) {
	return w.listMembers(ctx, name, question{api: "EtcdMemberList", leader: true, voter: true})
}

// EtcdMembersOfAny returns the member list that a control plane gets from any member rather than from its own (no
// query_local). It needs a leader.
func (w *World) EtcdMembersOfAny(ctx context.Context, name string) ([]EtcdMember, error) {
	return w.listMembers(ctx, name, question{api: "EtcdMemberList", leader: true, anywhere: true})
}

func (w *World) listMembers(ctx context.Context, name string, asked question) ([]EtcdMember, error) {
	var list []EtcdMember

	err := w.askEtcd(ctx, name, asked, func(*node) {
		for _, n := range w.members() {
			list = append(list, EtcdMember{ID: n.etcd.id, Name: n.name, Address: n.address, Learner: !n.etcd.votes()})
		}
	})

	return list, err
}

// EtcdStatus returns the local member's own view. It needs no leader and no vote.
func (w *World) EtcdStatus(ctx context.Context, name string) (EtcdStatus, error) {
	var status EtcdStatus

	err := w.askEtcd(ctx, name, question{api: "EtcdStatus"}, func(n *node) {
		const size, used = 48 << 20, 21 << 20

		now := w.clock.Now()
		status = EtcdStatus{
			Member: n.etcd.id, Leader: w.etcd.leader, Term: w.etcd.term,
			Index: w.etcd.at(now), Applied: n.etcd.applied(w.etcd, now),
			DBSize: size, DBSizeInUse: used, Version: n.etcdRelease().String(), Storage: w.storageVersion(n),
			Learner: !n.etcd.votes(),
		}

		w.distort(n, &status)

		if status.Leader == 0 {
			status.Errors = append(status.Errors, ErrNoLeader.Error())
		}

		for _, alarm := range w.alarms(n) {
			status.Errors = append(status.Errors, fmt.Sprintf("memberID:%d alarm:%s ", n.etcd.id, alarm))
		}
	})

	return status, err
}

const (
	// Lag is how many entries [EffectLagging] keeps a member behind.
	Lag = 5000
	// BigDatabase is the size of the database in bytes with [EffectBig]: 97.5
	// percent of the 2 GiB that etcd has by default.
	BigDatabase = 1996 << 20
)

// distort applies the script to a member's view of itself.
func (w *World) distort(n *node, status *EtcdStatus) {
	if n.suffers(StepEtcd, EffectLagging) {
		status.Applied -= min(status.Applied, Lag)
	}

	if n.suffers(StepEtcd, EffectBig) {
		status.DBSize, status.DBSizeInUse = BigDatabase, BigDatabase-BigDatabase/64
	}

	if n.suffers(StepEtcd, EffectNoLeader) {
		status.Leader = 0
	}

	if n.suffers(StepEtcd, EffectReports) {
		status.Errors = append(status.Errors, "etcdserver: request timed out")
	}
}

// alarms returns the alarms of a member.
func (w *World) alarms(n *node) []string {
	var raised []string

	if alarm := w.etcd.alarms[n.etcd.id]; alarm != "" {
		raised = append(raised, alarm)
	}

	if n.suffers(StepEtcd, EffectAlarmNoSpace) && !slices.Contains(raised, "NOSPACE") {
		raised = append(raised, "NOSPACE")
	}

	if n.suffers(StepEtcd, EffectAlarmCorrupt) && !slices.Contains(raised, "CORRUPT") {
		raised = append(raised, "CORRUPT")
	}

	return raised
}

// EtcdAlarms lists the alarms of the whole cluster as a member sees them; it needs
// a leader, and a vote.
func (w *World) EtcdAlarms(ctx context.Context, name string) ([]EtcdAlarm, error) {
	var list []EtcdAlarm

	err := w.askEtcd(ctx, name, question{api: "EtcdAlarmList", leader: true, voter: true}, func(*node) {
		for _, n := range w.members() {
			for _, alarm := range w.alarms(n) {
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

// ForfeitLeadership hands leadership to the next member and returns its name; the name is empty if this machine did
// not lead. A learner never leads, but is not refused either: Talos gets the member list from another member, and
// asks its own only for its status.
func (w *World) ForfeitLeadership(ctx context.Context, name string) (string, error) {
	var (
		heir    string
		refusal error
	)

	err := w.askEtcd(ctx, name, question{api: "EtcdForfeitLeadership", leader: true}, func(n *node) {
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

// silent returns what a machine says about its member if that does not answer.
func silent(n *node) error {
	return &labelled{ErrUnreachable, fmt.Sprintf("failed to create etcd client: dial tcp %s: connect: connection refused", hostPort(n.address, "2379"))}
}

// question is what a call of a machine's API asks of etcd.
type question struct {
	api string
	// leader is true if the call goes through the leader.
	leader bool
	// voter is true if learners do not serve the call. They serve only their status, a snapshot and serializable
	// reads (isRPCSupportedForLearner in v3rpc/util.go of etcd 3.6).
	voter bool
	// anywhere is true if any member may answer instead of the machine's own.
	anywhere bool
}

// refusal returns why a machine does not get an answer; nil if it gets one.
func (w *World) refusal(n *node, asked question) error {
	leaderless := w.etcd.leader == 0 || !asked.anywhere && n.suffers(StepEtcd, EffectNoLeader)

	switch {
	case n.etcd == nil:
		return fmt.Errorf("%s %w", asked.api, ErrNotControlPlane)
	case !asked.anywhere && !n.etcd.running:
		return ErrEtcdDown
	case !asked.anywhere && n.suffers(StepEtcd, EffectSilent):
		return silent(n)
	case asked.voter && !n.etcd.votes():
		return ErrLearner
	case asked.leader && leaderless:
		return ErrNoLeader
	default:
		return nil
	}
}

// askEtcd asks a machine's etcd, and calls answer under the lock unless the question is refused.
func (w *World) askEtcd(ctx context.Context, name string, asked question, answer func(*node)) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}

	w.locked(func() {
		var n *node

		if n, err = w.observe(name, "etcd"); err != nil {
			return
		}

		if err = w.refusal(n, asked); err == nil {
			answer(n)
		}
	})

	return err
}

const (
	// SnapshotSize is the length in bytes of a snapshot of etcd without its checksum, which follows it.
	SnapshotSize   = 3 << 20
	snapshotChunk  = 32 << 10
	snapshotChunks = SnapshotSize / snapshotChunk
)

// EtcdSnapshot writes a snapshot of the member of a control plane, found by name or address: the database of the
// member in [SnapshotSize] bytes, then their SHA-256, in pieces of 32 KiB and over some seconds. It comes from the
// local member, with a leader or without one. An error of the writer ends it.
func (w *World) EtcdSnapshot(ctx context.Context, name string, to io.Writer) error {
	var (
		current call
		stream  snapshotStream
	)

	err := w.askEtcd(ctx, name, question{api: "EtcdSnapshot"}, func(n *node) {
		const least, most = 2 * time.Second, 5 * time.Second

		current = begin(ctx, n)
		stream = snapshotStream{
			world: w, to: to, node: n.name,
			pause:   w.spread(n, "etcd snapshot", least, most) / (snapshotChunks + 1),
			content: bytes.NewReader(w.database(n)),
		}
		stream.fault, _ = w.takeFault(n.name, StepEtcdSnapshot)
	})
	if err != nil {
		return err
	}

	defer current.end()

	err = stream.run(current.ctx)
	if current.broken() {
		err = current.err(ctx)
	}

	whole := err == nil && stream.sent == SnapshotSize+sha256.Size && stream.fault.Effect != EffectCorrupt
	w.record(stream.node, history.KindSnapshot, map[string]string{
		"bytes": strconv.Itoa(stream.sent), "whole": strconv.FormatBool(whole),
	})

	return err
}

// snapshotStream is a snapshot that is being sent.
type snapshotStream struct {
	world   *World
	node    string
	to      io.Writer
	content io.Reader
	fault   Fault // zero for none
	pause   time.Duration
	sent    int
}

func (s *snapshotStream) run(ctx context.Context) error {
	if s.fault.Effect == EffectFail {
		return refuse("failed reading etcd snapshot: %s", s.fault.text("etcdserver: too many requests"))
	}

	hash := sha256.New()
	chunk := make([]byte, snapshotChunk)

	for i := range snapshotChunks {
		if _, err := io.ReadFull(io.TeeReader(s.content, hash), chunk); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}

		if i == snapshotChunks/2 {
			if ended, err := s.strike(ctx, chunk); ended || err != nil {
				return err
			}
		}

		if err := s.send(ctx, chunk); err != nil {
			return err
		}
	}

	return s.send(ctx, hash.Sum(nil))
}

// strike applies the script in the middle of a snapshot. ended is true if nothing more follows.
func (s *snapshotStream) strike(ctx context.Context, chunk []byte) (ended bool, err error) {
	switch s.fault.Effect {
	case EffectCut:
		return true, nil
	case EffectConnectionLost:
		return true, ErrConnectionLost
	case EffectStall:
		return false, s.world.stall(ctx, s.fault)
	case EffectCorrupt:
		for i := range sha256.Size {
			chunk[i] ^= 0xff
		}
	default:
	}

	return false, nil
}

func (s *snapshotStream) send(ctx context.Context, bytes []byte) error {
	if err := s.world.clock.Sleep(ctx, s.pause); err != nil {
		return err
	}

	written, err := s.to.Write(bytes)
	s.sent += written

	return err
}
