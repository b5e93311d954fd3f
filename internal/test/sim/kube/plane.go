// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/front"
)

const (
	// startTimeout bounds the start of all processes on a slow machine.
	startTimeout = 90 * time.Second
	// startPoll is how often a process is asked whether it serves.
	startPoll = 20 * time.Millisecond
	// startAttempts allows for a port that something else took at the last moment.
	startAttempts = 3
)

// plane is the real part of the cluster: etcd, kube-apiserver and, if there are machines, kube-controller-manager.
type plane struct {
	binaries Binaries
	dir      string
	logs     string
	ca       *certificate.Authority
	audit    io.Writer

	etcdURL   string
	address   string
	processes []*process
}

// start brings up etcd and the API server, and returns once it serves.
func (p *plane) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	var failed error

	for range startAttempts {
		if failed = p.try(ctx); failed == nil || ctx.Err() != nil {
			break
		}

		failed = errors.Join(failed, p.stop())
	}

	return failed
}

func (p *plane) try(ctx context.Context) error {
	ports, err := front.FreePorts(3)
	if err != nil {
		return err
	}

	if err := p.startEtcd(ctx, ports[0], ports[1]); err != nil {
		return err
	}

	return p.startAPIServer(ctx, ports[2])
}

func (p *plane) startEtcd(ctx context.Context, clientPort, peerPort int) error {
	data := filepath.Join(p.dir, "etcd")
	if err := os.RemoveAll(data); err != nil {
		return fmt.Errorf("clearing the data of an earlier etcd: %w", err)
	}

	p.etcdURL = "http://" + front.HostPort(clientPort)
	peer := "http://" + front.HostPort(peerPort)

	child, err := startProcess(p.logs, "etcd", p.binaries.Etcd, nil,
		"--name=talossim", "--data-dir="+data,
		"--listen-client-urls="+p.etcdURL, "--advertise-client-urls="+p.etcdURL,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=talossim="+peer,
		// The data does not outlive the process, so it may be lost with the power.
		"--unsafe-no-fsync", "--log-level=warn",
	)
	if err != nil {
		return err
	}

	p.processes = append(p.processes, child)

	return child.serves(ctx, &http.Transport{DisableKeepAlives: true}, p.etcdURL+"/health")
}

// stop ends the processes, the last one first.
func (p *plane) stop() error {
	var failed error

	for _, child := range slices.Backward(p.processes) {
		failed = errors.Join(failed, child.stop())
	}

	p.processes = nil

	return failed
}

// serves waits until the process answers at the URL, or ends.
func (p *process) serves(ctx context.Context, transport http.RoundTripper, url string) error {
	ticker := time.NewTicker(startPoll)
	defer ticker.Stop()

	for {
		last := probe(ctx, transport, url)
		if last == nil {
			return nil
		}

		select {
		case <-ticker.C:
		case <-p.done:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to serve: %w (last: %w; its log is %s)", p.name, ctx.Err(), last, p.log)
		}
	}
}

func probe(ctx context.Context, transport http.RoundTripper, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}

	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer response.Body.Close()

	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}

	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s", url, response.Status)
	}

	return nil
}

// config returns the configuration of a client that talks to the API server directly, whatever the state of the
// simulated machines.
func (p *plane) config(identity certificate.Pair, agent string) *rest.Config {
	return &rest.Config{
		Host:      "https://" + p.address,
		UserAgent: agent,
		// Negative means no limit: a limit would add delays that do not scale with the speed of the simulation.
		QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   p.ca.PEM,
			CertData: identity.Certificate,
			KeyData:  identity.Key,
		},
	}
}

const (
	// userSimulator writes for the kubelets, the scheduler and other parts that the simulator plays; the audit log
	// leaves it out.
	userSimulator = "talossim"
	// userMachine writes for a machine that upgrades itself.
	userMachine = "talossim:machine"
	// userAdmin is the user of the kubeconfig for clients.
	userAdmin = "admin"

	userControllers = "system:kube-controller-manager"
	groupAdmins     = "system:masters"

	// agentDirect begins the user agent of a [rest.Config] that is given out.
	agentDirect = "talossim-direct"
	// simulatedName is the cluster in the kubeconfigs of the upgraded cluster.
	simulatedName = "talossim"
)

func (p *plane) file(name string) string { return filepath.Join(p.dir, "pki", name) }

func (p *plane) writeFiles() error {
	for _, dir := range []string{p.logs, filepath.Join(p.dir, "pki")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the directory of the Kubernetes side: %w", err)
		}
	}

	if err := os.WriteFile(p.file("ca.crt"), p.ca.PEM, 0o600); err != nil {
		return fmt.Errorf("writing the certificate authority: %w", err)
	}

	if err := os.WriteFile(p.file("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}

	serving, err := p.ca.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost", "kubernetes", "kubernetes.default.svc"},
	})
	if err != nil {
		return err
	}

	if err := serving.Write(p.file("apiserver")); err != nil {
		return err
	}

	accounts, err := identify(p.ca, "service-accounts")
	if err != nil {
		return err
	}

	return accounts.Write(p.file("service-accounts"))
}

func (p *plane) startAPIServer(ctx context.Context, port int) error {
	p.address = front.HostPort(port)

	child, err := startProcess(p.logs, "kube-apiserver", p.binaries.APIServer, p.audit,
		"--etcd-servers="+p.etcdURL,
		"--bind-address="+front.Loopback, "--advertise-address="+front.Loopback, "--secure-port="+strconv.Itoa(port),
		"--endpoint-reconciler-type=none",
		"--tls-cert-file="+p.file("apiserver.crt"), "--tls-private-key-file="+p.file("apiserver.key"),
		"--client-ca-file="+p.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.file("service-accounts.crt"),
		"--service-account-signing-key-file="+p.file("service-accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC", "--allow-privileged=true",
		// Service accounts do not exist here.
		"--disable-admission-plugins=ServiceAccount",
		"--enable-priority-and-fairness=false",
		"--audit-policy-file="+p.file("audit.yaml"),
		// Standard output is a pipe to the reader of the log: nothing rotates, and a line is there as soon as it is
		// written.
		"--audit-log-path=-", "--audit-log-mode=blocking", "--audit-log-format=json",
	)
	if err != nil {
		return err
	}

	p.processes = append(p.processes, child)

	identity, err := identify(p.ca, userSimulator, groupAdmins)
	if err != nil {
		return err
	}

	prober, err := newClient(p.config(identity, userSimulator))
	if err != nil {
		return err
	}
	defer prober.close()

	return child.serves(ctx, prober.transport, "https://"+p.address+"/readyz")
}

// startControllers brings up kube-controller-manager with what workloads, their budgets and the manifests of Talos
// need, and with nothing that would take over a part that the simulator plays.
func (p *plane) startControllers() error {
	identity, err := identify(p.ca, userControllers, groupAdmins)
	if err != nil {
		return err
	}

	config, err := encodeKubeconfig("https://"+p.address, p.ca.PEM, identity, simulated(userControllers))
	if err != nil {
		return err
	}

	if err := os.WriteFile(p.file("controllers.kubeconfig"), config, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of kube-controller-manager: %w", err)
	}

	child, err := startProcess(p.logs, "kube-controller-manager", p.binaries.ControllerManager, nil,
		"--kubeconfig="+p.file("controllers.kubeconfig"),
		"--controllers=deployment-controller,replicaset-controller,daemonset-controller,disruption-controller,garbage-collector-controller",
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	)
	if err != nil {
		return err
	}

	p.processes = append(p.processes, child)

	return nil
}

// identify issues the certificate of a user who belongs to the groups.
func identify(ca *certificate.Authority, user string, groups ...string) (certificate.Pair, error) {
	return ca.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// kubeconfigNames are the names of the entries of a kubeconfig.
type kubeconfigNames struct{ cluster, user, context string }

// simulated returns the names for a user of the upgraded cluster.
func simulated(user string) kubeconfigNames {
	return kubeconfigNames{cluster: simulatedName, user: user, context: user + "@" + simulatedName}
}

// encodeKubeconfig returns a kubeconfig with everything inline.
func encodeKubeconfig(server string, ca []byte, identity certificate.Pair, names kubeconfigNames) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[names.cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[names.user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: identity.Certificate,
		ClientKeyData:         identity.Key,
	}
	config.Contexts[names.context] = &clientcmdapi.Context{Cluster: names.cluster, AuthInfo: names.user, Namespace: "default"}
	config.CurrentContext = names.context

	encoded, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}

	return encoded, nil
}

// process is a child in its own process group that does not outlive this process.
type process struct {
	name    string
	command *exec.Cmd
	log     string
	// done is closed once the child has ended; err says how, after that.
	done chan struct{}
	err  error
}

// startProcess runs a program with its standard error in DIR/NAME.log. The
// standard output goes there as well, unless stdout is given.
func startProcess(dir, name, program string, stdout io.Writer, args ...string) (*process, error) {
	path := filepath.Join(dir, name+".log")

	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}

	command := exec.Command(program, args...)
	command.Stderr = file
	command.Stdout = stdout
	// Settings for the user's own tools must not reach these programs.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir()}
	command.SysProcAttr = ownGroup()

	if stdout == nil {
		command.Stdout = file
	}

	child := &process{name: name, command: command, log: path, done: make(chan struct{})}
	started := make(chan error, 1)

	go func() {
		// The parent-death signal of Linux follows the thread that started the
		// child, so that thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(child.done)
		defer file.Close()

		err := command.Start()
		started <- err

		if err == nil {
			child.err = command.Wait()
		}
	}()

	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	return child, nil
}

// stop kills the child and everything in its process group: none of these processes has anything to save.
func (p *process) stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}

	if err := kill(p.command.Process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}

	// A killed process ends; only the kernel can delay it.
	<-p.done

	return nil
}

// failure describes a child that ended by itself, with the end of its log.
func (p *process) failure() error {
	return fmt.Errorf("%s ended unexpectedly (%w); the end of %s:\n%s", p.name, p.exit(), p.log, tail(p.log))
}

func (p *process) exit() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}

	return p.err
}

// tail returns the last lines of a file, for an error message.
func tail(path string) string {
	const lines, window = 12, 8 << 10

	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()

	if info, err := file.Stat(); err == nil && info.Size() > window {
		if _, err := file.Seek(-window, io.SeekEnd); err != nil {
			return err.Error()
		}
	}

	content, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}

	all := bytes.Split(bytes.TrimSpace(content), []byte("\n"))

	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}

// Kubeconfig returns the administrator's kubeconfig, with everything inline. Its server is the shared address,
// which leads to any control plane that is up.
func (s *Server) Kubeconfig() ([]byte, error) {
	if s.admin == nil {
		return nil, errors.New("the simulated Kubernetes has not been started")
	}

	return s.admin, nil
}

// Config returns a configuration that reaches the API server whatever the state of the simulated control planes.
// The history attributes its writes to others.
func (s *Server) Config() (*rest.Config, error) {
	if s.admin == nil {
		return nil, errors.New("the simulated Kubernetes has not been started")
	}

	identity, err := identify(s.ca, userAdmin, groupAdmins)
	if err != nil {
		return nil, err
	}

	return s.plane.config(identity, agentDirect), nil
}

// KubeconfigFor returns the administrator's kubeconfig for one control plane only.
func (s *Server) KubeconfigFor(node string) ([]byte, error) {
	if s.admin == nil {
		return nil, errors.New("the simulated Kubernetes has not been started")
	}

	port := s.front.Port(node)
	if port == 0 {
		return nil, fmt.Errorf("%q is not the name of a control plane", node)
	}

	return s.kubeconfig(port)
}

func (s *Server) kubeconfig(port int) ([]byte, error) {
	identity, err := identify(s.ca, userAdmin, groupAdmins)
	if err != nil {
		return nil, err
	}

	return encodeKubeconfig("https://"+front.HostPort(port), s.ca.PEM, identity, simulated(userAdmin))
}
