// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// play is a demo whose cluster is up.
type play struct {
	show      *screen
	wanted    scenario
	cluster   *simulator
	terraform *terraform
	// report is the path of the picture that the provider draws.
	report string
}

// acts are the parts of the play, in order.
func (p *play) acts(ctx context.Context) error {
	told, err := p.upgrade(ctx)
	if err != nil {
		return err
	}

	if err := p.result(ctx, told); err != nil {
		return err
	}

	return p.afterwards(ctx)
}

// upgrade applies the configuration and tells what happens meanwhile.
func (p *play) upgrade(ctx context.Context) (*story, error) {
	p.show.chapter("%s plan: Talos %s -> %s", p.terraform.name, p.wanted.from, p.wanted.to)

	if err := p.terraform.run(ctx, roll, "plan", "-out=roll.tfplan"); err != nil {
		return nil, err
	}

	p.show.chapter("%s apply (times are simulated minutes)", p.terraform.name)

	told := newStory(p.wanted.to)

	// The follower reads what is left after Terraform ended, cancelled or not.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	var (
		group   sync.WaitGroup
		tailErr error
	)

	group.Go(func() {
		tailErr = tail(following, p.cluster.path("history.jsonl"), func(event history.Event) {
			for _, entry := range told.tell(event) {
				p.show.line(entry.mood, "%s", entry)

				if entry.overview {
					p.show.line(quiet, "%17s%s", "", told.overview())
				}
			}
		})
	})

	err := p.terraform.run(ctx, milestones, "apply", "-auto-approve", "roll.tfplan")

	stop()
	group.Wait()

	return told, errors.Join(err, tailErr)
}

// result shows and judges what the upgrade left.
func (p *play) result(ctx context.Context, told *story) error {
	judged, err := p.cluster.verdict(ctx)
	if err != nil {
		return err
	}

	annotations, err := readAnnotations(ctx, p.cluster.path("kubeconfig"))
	if err != nil {
		return err
	}

	p.show.chapter("Nodes")
	fmt.Fprint(p.show, nodeTable(told, judged))
	p.show.chapter("A picture of the run, for a browser (its times are real ones)")

	if _, err := os.Stat(p.report); err != nil {
		return fmt.Errorf("the provider drew no picture: %w", err)
	}

	p.show.line(plain, "%s", p.report)
	p.show.chapter("Annotations of the ConfigMap kube-system/talosupgrade")
	fmt.Fprint(p.show, annotationTable(annotations))
	p.show.chapter("The simulator's verdict")

	if err := complain(judged.complaints(p.wanted.to, p.wanted.size()), announced(annotations, p.wanted.to, p.wanted.size())); err != nil {
		return err
	}

	p.show.line(good, "no violation; every node was installed once and rebooted once, and none is cordoned")

	return nil
}

// afterwards checks that nothing is left to do, and that a destroy touches
// nothing but what is ours.
func (p *play) afterwards(ctx context.Context) error {
	p.show.chapter("Once more, and away")

	if err := p.terraform.run(ctx, milestones, "plan", "-detailed-exitcode"); err != nil {
		return fmt.Errorf("a second plan should be empty: %w", err)
	}

	if err := p.terraform.run(ctx, milestones, "destroy", "-auto-approve"); err != nil {
		return err
	}

	judged, err := p.cluster.verdict(ctx)
	if err != nil {
		return err
	}

	left, err := leftovers(ctx, p.cluster.path("kubeconfig"))
	if err != nil {
		return err
	}

	if err := complain(judged.complaints(p.wanted.to, p.wanted.size()), left); err != nil {
		return fmt.Errorf("after plan and destroy: %w", err)
	}

	p.show.line(good, "nothing to do for a second plan; destroy took our objects away and left every node as it is")

	return nil
}

// complain makes one error of all complaints.
func complain(complaints ...[]string) error {
	var all []string
	for _, some := range complaints {
		all = append(all, some...)
	}

	if len(all) == 0 {
		return nil
	}

	return errors.New(strings.Join(all, "\n  "))
}
