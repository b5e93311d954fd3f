// SPDX-License-Identifier: MPL-2.0

package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// controlFile holds the address and the token with which a running simulator accepts requests.
const controlFile = "control"

// controlTimeout bounds one request to a running simulator.
const controlTimeout = 10 * time.Second

// control lets other processes change a running simulation: machines join, faults come and go, somebody else
// changes an image.
type control struct {
	server *http.Server
	path   string
	done   chan error
}

func startControl(s *Simulator) (*control, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for control requests: %w", err)
	}

	// Everybody who may read the file may control the simulation.
	token := s.World.ClusterID()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /nodes", s.handleNode)
	mux.HandleFunc("PUT /faults", s.handleFaults)
	mux.HandleFunc("PUT /images", s.handleImage)

	c := &control{
		server: &http.Server{Handler: authorised(token, mux), ReadHeaderTimeout: controlTimeout},
		path:   filepath.Join(s.dir, controlFile),
		done:   make(chan error, 1),
	}

	go func() { c.done <- c.server.Serve(listener) }()

	if err := os.WriteFile(c.path, []byte(listener.Addr().String()+" "+token+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the control file: %w", err), c.stop())
	}

	return c, nil
}

func authorised(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "wrong token", http.StatusUnauthorized)

			return
		}

		next.ServeHTTP(w, r)
	})
}

func (c *control) stop() error {
	failed := c.server.Close()

	if err := <-c.done; !errors.Is(err, http.ErrServerClosed) {
		failed = errors.Join(failed, err)
	}

	if err := os.Remove(c.path); !errors.Is(err, os.ErrNotExist) {
		failed = errors.Join(failed, err)
	}

	return failed
}

func (s *Simulator) handleNode(w http.ResponseWriter, r *http.Request) {
	var options model.NodeOptions
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	name, err := s.AddNode(options)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)

		return
	}

	_, _ = io.WriteString(w, name)
}

func (s *Simulator) handleFaults(w http.ResponseWriter, r *http.Request) {
	script, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	faults, err := model.LoadFaults(script)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)

		return
	}

	s.SetFaults(faults)
}

// imageRequest asks for another image of a component on a node.
type imageRequest struct {
	Node      string `json:"node"`
	Component string `json:"component"`
	Image     string `json:"image"`
}

func (s *Simulator) handleImage(w http.ResponseWriter, r *http.Request) {
	var wanted imageRequest
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)

		return
	}

	if err := s.SetImage(wanted.Node, wanted.Component, wanted.Image); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	}
}

// RequestNode asks the simulator that runs in dir to let a machine join, and returns its name.
func RequestNode(ctx context.Context, dir string, options model.NodeOptions) (string, error) {
	body, err := json.Marshal(options)
	if err != nil {
		return "", fmt.Errorf("encoding the request: %w", err)
	}

	return request(ctx, dir, http.MethodPost, "/nodes", body)
}

// RequestFaults replaces the fault script of the simulator that runs in dir.
func RequestFaults(ctx context.Context, dir string, script []byte) error {
	_, err := request(ctx, dir, http.MethodPut, "/faults", script)

	return err
}

// RequestImage changes the image of a component in the configuration of a node
// of the simulator that runs in dir, as a person with talosctl does. The
// component restarts after it returns.
func RequestImage(ctx context.Context, dir, node, component, image string) error {
	body, err := json.Marshal(imageRequest{Node: node, Component: component, Image: image})
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}

	_, err = request(ctx, dir, http.MethodPut, "/images", body)

	return err
}

func request(ctx context.Context, dir, method, path string, body []byte) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, controlFile))
	if err != nil {
		return "", fmt.Errorf("no simulator runs in %s: %w", dir, err)
	}

	address, token, found := strings.Cut(strings.TrimSpace(string(content)), " ")
	if !found {
		return "", fmt.Errorf("the file %s in %s is damaged: start the simulator anew", controlFile, dir)
	}

	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()

	made, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return "", fmt.Errorf("asking the simulator: %w", err)
	}

	made.Header.Set("Authorization", "Bearer "+token)

	answer, err := http.DefaultClient.Do(made)
	if err != nil {
		return "", fmt.Errorf("asking the simulator: %w", err)
	}

	defer func() { _ = answer.Body.Close() }()

	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", fmt.Errorf("reading the simulator's answer: %w", err)
	}

	if answer.StatusCode >= http.StatusBadRequest {
		return "", fmt.Errorf("the simulator refused: %s", strings.TrimSpace(string(text)))
	}

	return string(text), nil
}
