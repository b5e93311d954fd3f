// SPDX-License-Identifier: MPL-2.0

package project

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestReleaseInstallsFromARegistry serves the files as a registry does that has read them from a release: init then
// checks the sums against the signature, the signature against the key, and the zip against the sums. The lock file
// has to have the hashes of every platform.
func TestReleaseInstallsFromARegistry(t *testing.T) {
	d := openDist(t)

	for _, cli := range commandLines(t) {
		t.Run(cli.Name, func(t *testing.T) {
			host, certificates := serveRegistry(t, d, nil)

			i := install(t, cli, host+"/vitistack/talosupgrade", d.version, "", "SSL_CERT_FILE="+certificates)
			hashes := []string{d.packageHash(t, platform{runtime.GOOS, runtime.GOARCH})}

			sums := d.sums(t)
			for _, p := range platforms() {
				hashes = append(hashes, "zh:"+sums[filepath.Base(d.archive(p))])
			}

			i.requireLocked(t, hashes...)
			i.requireWorking(t)
		})
	}
}

// TestReleaseIsRefusedWhereTheSumsWereChanged shows that the check in [TestReleaseInstallsFromARegistry] can fail.
func TestReleaseIsRefusedWhereTheSumsWereChanged(t *testing.T) {
	d := openDist(t)

	for _, cli := range commandLines(t) {
		t.Run(cli.Name, func(t *testing.T) {
			forged := append(read(t, d.path("SHA256SUMS")), []byte(strings.Repeat("0", 64)+"  more.zip\n")...)
			host, certificates := serveRegistry(t, d, forged)

			dir := t.TempDir()
			configuration := fmt.Sprintf("terraform {\n  required_providers {\n    talosupgrade = {\n      source = %q\n      version = %q\n    }\n  }\n}\n",
				host+"/vitistack/talosupgrade", d.version)

			if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(configuration), 0o600); err != nil {
				t.Fatal(err)
			}

			command := exec.CommandContext(t.Context(), cli.Path, "init", "-input=false", "-no-color")
			command.Dir = dir
			command.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+os.DevNull, "CHECKPOINT_DISABLE=1", "SSL_CERT_FILE="+certificates)

			output, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(output), "signature") {
				t.Errorf("sums that were not signed are accepted, or refused for another reason (%v):\n%s", err, output)
			}
		})
	}
}

// serveRegistry serves a registry with one provider in one version. It returns its host and the file with its
// certificate. If sums is not nil, it replaces the released sums.
func serveRegistry(t *testing.T, d dist, sums []byte) (host, certificates string) {
	t.Helper()

	mux := http.NewServeMux()
	answer := func(pattern string, value any) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")

			if err := json.NewEncoder(w).Encode(value); err != nil {
				t.Error(err)
			}
		})
	}

	mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(http.Dir(d.dir))))

	if sums != nil {
		mux.HandleFunc("/files/"+d.name("SHA256SUMS"), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(sums) })
	}

	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)

	var listed []map[string]string

	for _, p := range platforms() {
		listed = append(listed, map[string]string{"os": p.os, "arch": p.arch})
		archive := filepath.Base(d.archive(p))

		answer(path.Join("/v1/vitistack/talosupgrade", d.version, "download", p.os, p.arch), map[string]any{
			"protocols": []string{"6.0"}, "os": p.os, "arch": p.arch, "filename": archive,
			"download_url":          server.URL + "/files/" + archive,
			"shasums_url":           server.URL + "/files/" + d.name("SHA256SUMS"),
			"shasums_signature_url": server.URL + "/files/" + d.name("SHA256SUMS.sig"),
			"shasum":                d.sums(t)[archive],
			"signing_keys": map[string]any{"gpg_public_keys": []map[string]string{{
				"key_id": "", "ascii_armor": string(read(t, filepath.Join(d.dir, "signing-key.asc"))),
			}}},
		})
	}

	answer("/.well-known/terraform.json", map[string]string{"providers.v1": "/v1/"})
	answer("/v1/vitistack/talosupgrade/versions", map[string]any{"versions": []map[string]any{
		{"version": d.version, "protocols": []string{"6.0"}, "platforms": listed},
	}})

	certificates = filepath.Join(t.TempDir(), "registry.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	if err := os.WriteFile(certificates, encoded, 0o600); err != nil {
		t.Fatal(err)
	}

	return strings.TrimPrefix(server.URL, "https://"), certificates
}
