// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/report"
)

func TestPathsThatNoReportCanHaveAreRefused(t *testing.T) {
	for path, says := range map[string]string{
		"":                            "is empty",
		"a\nb":                        "no path can hold",
		"~/upgrade.html":              `pathexpand("~/upgrade.html")`,
		"https://example.com/up.html": "is an address",
		"reports/":                    `such as "reports/upgrade.html"`,
	} {
		t.Run(says, func(t *testing.T) {
			check(t, judged(reportPathValidator{}, path)(t), outcome{diag.SeverityError, says})
		})
	}

	check(t, judged(reportPathValidator{}, "reports/upgrade.html")(t))
}

// TestReportWithoutAPlaceStopsTheUpgrade before it looks at the cluster.
func TestReportWithoutAPlaceStopsTheUpgrade(t *testing.T) {
	fake := threeNodes("1.13.0", "1.34.2")
	wanted := desired("1.13.4", "")
	wanted.ReportPath = types.StringValue(filepath.Join(t.TempDir(), "upgrade.html"))

	clusters := fake.clusters(t)
	if !clusters.claims.write(wanted.ReportPath.ValueString(), "another resource") {
		t.Fatal("nobody has the file, and it cannot be had")
	}

	state, diagnostics := create(t, clusters, wanted)
	check(t, diagnostics, outcome{diag.SeverityError, "another talosupgrade_cluster resource writes its own report there"})

	if state != nil || diagnostics[0].Summary() != "Unable to write the report" || !strings.Contains(diagnostics[0].Detail(), "Nothing was touched.") {
		t.Errorf("got %v", diagnostics)
	}
}

// TestReportThatCannotBeWrittenSaysSoOnce has the whole text.
func TestReportThatCannotBeWrittenSaysSoOnce(t *testing.T) {
	directory := t.TempDir()
	wanted := desired("1.13.4", "")
	wanted.ReportPath = types.StringValue(directory)

	_, diagnostics := create(t, threeNodes("1.13.0", "1.34.2").clusters(t), wanted)

	want := directory + " cannot be written: it is a directory. Nothing was touched.\n\n" +
		"Let report_path name a file that can be written on the machine that runs this, one for each resource, or remove it; then run the command again."
	if got := diagnostics[0]; got.Summary() != "Unable to write the report" || !strings.HasPrefix(got.Detail(), want) {
		t.Errorf("%s: %s\nwant %s", got.Summary(), got.Detail(), want)
	}
}

func TestReportThatCannotBeWrittenInTheEndIsAWarning(t *testing.T) {
	out := &runObservers{report: report.New(report.Options{Path: filepath.Join(t.TempDir(), "gone", "upgrade.html")})}
	out.report.Observe(cluster.Event{Kind: cluster.EventRunStarted, Time: time.Now()})

	check(t, noted(t, out.undrawn(t.Context(), endingOf(cluster.Observation{}, nil))("prod")), outcome{diag.SeverityWarning, "no such file or directory"})
}
