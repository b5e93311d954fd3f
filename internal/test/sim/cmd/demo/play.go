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
	// given are the variables of the configuration.
	given variables
	told  *story
	tail  *tail
}

// acts plays the parts of the play, in order.
func (p *play) acts(ctx context.Context) error {
	// Reports of an earlier demo prove nothing.
	for _, page := range []string{p.given.ReportPath, p.keptPage()} {
		if err := os.Remove(page); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the report of an earlier demo: %w", err)
		}
	}

	if p.wanted.story == storyFallback {
		if err := p.fallBack(ctx); err != nil {
			return err
		}
	}

	if err := p.upgrade(ctx); err != nil {
		return err
	}

	if err := p.result(ctx); err != nil {
		return err
	}

	return p.afterwards(ctx)
}

// upgrade plans and applies the configuration, and shows what happens meanwhile.
func (p *play) upgrade(ctx context.Context) error {
	if err := p.given.write(p.terraform.space.Dir); err != nil {
		return err
	}

	warnings, err := p.terraform.run(ctx, "plan", "-out=roll.tfplan")
	if err != nil {
		return err
	}

	what, how := planned(warnings)
	if what == "" {
		return errors.New("the plan says nothing of a rolling upgrade")
	}

	p.show.chapter("%s plan: %s", p.terraform.name, what)
	p.show.line(plain, "%s", how)

	p.show.chapter("%s apply", p.terraform.name)

	if len(p.given.RetryBootIDs) == 0 {
		p.show.tell(entry{node: "node", took: "took", what: "what happened to it", mood: quiet})
	}

	// What is left is read after Terraform ended, cancelled or not.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	var (
		group   sync.WaitGroup
		tailErr error
	)

	group.Go(func() {
		tailErr = p.tail.follow(following, func(event history.Event) {
			for _, told := range p.told.tell(event) {
				p.show.tell(told)
			}

			p.show.Status(p.told.status())
		})
		p.show.Status("")
	})

	_, err = p.terraform.run(ctx, "apply", "roll.tfplan")

	stop()
	group.Wait()

	return errors.Join(err, tailErr)
}

// result shows and judges what the upgrade left.
func (p *play) result(ctx context.Context) error {
	judged, err := p.cluster.verdict(ctx)
	if err != nil {
		return err
	}

	annotations, err := readAnnotations(ctx, p.cluster.path("kubeconfig"))
	if err != nil {
		return err
	}

	if _, err := os.Stat(p.given.ReportPath); err != nil {
		return fmt.Errorf("the provider drew no picture: %w", err)
	}

	p.show.chapter("What was protected, as the simulator recorded it")

	var broken []string

	for _, line := range p.told.protected() {
		row(p.show, line)

		if line.mood == bad {
			broken = append(broken, line.node+": "+line.what)
		}
	}

	if err := complain(broken, judged.complaints(p.wanted.end()), announced(annotations, p.wanted.to, p.wanted.size())); err != nil {
		return err
	}

	row(p.show, entry{node: "verdict", what: p.wanted.verdict(), mood: good})

	return nil
}

// row writes an entry of the table at the end.
func row(show *screen, told entry) {
	told.node = fmt.Sprintf("%-12s", told.node)
	show.tell(told)
}

// afterwards checks that nothing is left to do, and that a destroy touches only the provider's own objects.
func (p *play) afterwards(ctx context.Context) error {
	if _, err := p.terraform.run(ctx, "plan", "-detailed-exitcode"); err != nil {
		return fmt.Errorf("a second plan should be empty: %w", err)
	}

	if _, err := p.terraform.run(ctx, "destroy", "-auto-approve"); err != nil {
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

	if err := complain(judged.complaints(p.wanted.end()), left); err != nil {
		return fmt.Errorf("after plan and destroy: %w", err)
	}

	row(p.show, entry{node: "afterwards", what: "another plan found nothing to do; destroy removed the provider's own objects and touched no node", mood: good})
	row(p.show, entry{node: "report", what: p.given.ReportPath + " (a page for a browser; its times are real ones)"})

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
