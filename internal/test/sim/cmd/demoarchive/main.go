// SPDX-License-Identifier: MPL-2.0

// Command demoarchive writes an archive for each platform with everything that the demo needs except the command
// line, for those who have no Go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// platforms are those on which people try something.
var platforms = [...]toolchain.Platform{
	{OS: "linux", Arch: "amd64"},
	{OS: "linux", Arch: "arm64"},
	{OS: "darwin", Arch: "amd64"},
	{OS: "darwin", Arch: "arm64"},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)

	stop()

	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demoarchive:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	set := flag.NewFlagSet("demoarchive", flag.ContinueOnError)
	set.SetOutput(progress)

	version := set.String("version", "", "version of the provider in it (required)")
	seconds := set.Int64("time", 0, "time that every file in it gets, in seconds since 1970")
	targets := set.String("targets", "", "platforms such as linux_amd64, separated by commas; those without a demo are left out. All by default")
	dir := set.String("dir", "dist", "directory that the archives are put into")

	if err := set.Parse(args); err != nil {
		return err
	}

	if *version == "" || set.NArg() > 0 {
		return fmt.Errorf("-version is %q and the arguments are %q: want a version and no argument", *version, set.Args())
	}

	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return fmt.Errorf("creating the directory of the archives: %w", err)
	}

	for _, target := range chosen(*targets) {
		files, err := toolchain.ArchiveFiles(ctx, target, *version, toolchain.Options{Progress: progress})
		if err != nil {
			return err
		}

		name := fmt.Sprintf("talosupgrade-demo_%s_%s", *version, target)
		path := filepath.Join(*dir, name+".tar.gz")

		if err := write(path, name, files, time.Unix(*seconds, 0)); err != nil {
			return err
		}

		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("looking at the archive: %w", err)
		}

		fmt.Fprintf(progress, "wrote %s, %.1f MiB\n", path, float64(info.Size())/(1<<20))
	}

	return nil
}

// chosen returns the platforms of a list that have a demo.
func chosen(list string) []toolchain.Platform {
	if list == "" {
		return platforms[:]
	}

	wanted := strings.Split(list, ",")

	return slices.DeleteFunc(slices.Clone(platforms[:]), func(p toolchain.Platform) bool { return !slices.Contains(wanted, p.String()) })
}
