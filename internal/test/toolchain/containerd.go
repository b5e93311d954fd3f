// SPDX-License-Identifier: MPL-2.0

package toolchain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Containerd returns the directory with containerd, its shim and ctr, as internal/tools/containerd pins them. The
// first call on a machine compiles them.
func Containerd(ctx context.Context, options Options) (string, error) {
	const what = "containerd, its shim and ctr"

	return ensureModule(ctx, "containerd", "containerd", options, func(ctx context.Context, module, dir string) error {
		return build{
			dir:    module,
			output: dir + string(filepath.Separator),
			packages: []string{
				"github.com/containerd/containerd/v2/cmd/containerd",
				"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
				"github.com/containerd/containerd/v2/cmd/ctr",
			},
			what: what,
		}.announced(ctx, options.progress(), "building "+what+" for real machines: once, a minute or two")
	})
}

// BaseRuntimeSpec returns what Talos 1.13 writes to /etc/cri/conf.d/base-spec.json by default. Its CRI service does
// not wait for that file. If the file is empty when containerd starts, no Pod ever runs on the machine, so a root
// directory has it from the beginning.
func BaseRuntimeSpec(ctx context.Context, containerd string) ([]byte, error) {
	var complaint bytes.Buffer

	command := exec.CommandContext(ctx, filepath.Join(containerd, "ctr"), "--namespace", "k8s.io", "oci", "spec")
	command.Stderr = &complaint

	said, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("ctr oci spec: %w\n%s", err, &complaint)
	}

	var spec map[string]any
	if err := json.Unmarshal(said, &spec); err != nil {
		return nil, fmt.Errorf("reading what ctr oci spec prints: %w", err)
	}

	process, ok := spec["process"].(map[string]any)
	if !ok {
		return nil, errors.New("what ctr oci spec prints has no process")
	}

	delete(process, "rlimits")

	return json.Marshal(spec)
}
