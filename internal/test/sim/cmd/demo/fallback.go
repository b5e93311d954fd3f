// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"regexp"
)

// fallbackNode is the node that falls back in the story of that name: another one is upgraded
// before it, and others would come after it.
const fallbackNode = "worker-1"

// fallbackScript is the fault script of that story.
const fallbackScript = "faults: [{node: " + fallbackNode + ", step: boot, effect: fallback}]\n"

// retryAdvice matches what an error says about how to try the image again.
var retryAdvice = regexp.MustCompile(`node_overrides = \{ "([^"]+)" = \{ retry_boot_id = "([^"]+)" \} \}`)

// fallBack is the first act of the fallback: an apply that fails, and the advice of its error.
func (p *play) fallBack(ctx context.Context) error {
	var failed *failedCall

	switch err := p.upgrade(ctx); {
	case err == nil:
		return errors.New("the apply succeeded although " + fallbackNode + " was to fall back")
	case !errors.As(err, &failed) || len(failed.errors) != 1:
		return err
	}

	said := failed.errors[0]

	p.show.line(bad, "\n%s apply failed: %s", p.terraform.name, said.Summary)

	for _, paragraph := range essence(said.Detail) {
		p.show.hang(plain, "  | ", paragraph)
	}

	advice := retryAdvice.FindStringSubmatch(said.Detail)
	if advice == nil {
		return fmt.Errorf("the error does not say how the image is tried again: %w", failed)
	}

	page, err := p.keepPage(advice[0])
	if err != nil {
		return err
	}

	judged, err := p.cluster.verdict(ctx)
	if err != nil {
		return err
	}

	p.show.chapter("How the cluster was left")
	p.show.line(plain, "%s", judged.standing())
	p.show.line(plain, "what was seen and what to do is in the report as well: %s", page)

	if err := complain(judged.complaints(p.wanted.fallenBack())); err != nil {
		return err
	}

	p.show.chapter("The planted fault is removed, and another try is allowed as the error says")

	if err := os.WriteFile(p.cluster.path(faultsFile), nil, 0o600); err != nil {
		return fmt.Errorf("removing the fault: %w", err)
	}

	p.given.RetryBootIDs = map[string]string{advice[1]: advice[2]}
	p.show.copy(advice[0])

	return nil
}

// keptPage returns where the report of a failed run is kept.
func (p *play) keptPage() string {
	return filepath.Join(filepath.Dir(p.given.ReportPath), "fallback.html")
}

// keepPage keeps the report of the failed run next to the one that the next apply writes, and returns its path.
func (p *play) keepPage(advice string) (string, error) {
	page, err := os.ReadFile(p.given.ReportPath)
	if err != nil {
		return "", fmt.Errorf("the provider drew no picture: %w", err)
	}

	if !bytes.Contains(page, []byte("What to do now")) || !bytes.Contains(page, []byte(template.HTMLEscapeString(advice))) {
		return "", fmt.Errorf("the report in %s does not say what to do", p.given.ReportPath)
	}

	kept := p.keptPage()
	if err := os.WriteFile(kept, page, 0o600); err != nil {
		return "", fmt.Errorf("keeping the report of the failed run: %w", err)
	}

	return kept, nil
}
