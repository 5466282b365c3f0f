package devenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// PulsarServer is a running Apache Pulsar.
type PulsarServer struct {
	server

	// URL is the address for clients, pulsar://host:port.
	URL string

	// AdminURL is the address of the admin API, http://host:port.
	AdminURL string
}

// Pulsar finds or starts an Apache Pulsar. The caller stops it.
func Pulsar(ctx context.Context, options *Options) (*PulsarServer, error) {
	opts := withDefaults(options)
	if address := os.Getenv("PULSAR_URL"); address != "" && !opts.Own {
		return runningPulsar(ctx, opts, address)
	}
	java, err := provideJava(ctx, opts)
	if err != nil {
		return nil, err
	}
	home, err := fetchPulsar(ctx, opts)
	if err != nil {
		return nil, err
	}
	p := &PulsarServer{server: server{name: "pulsar", timeout: opts.StartTimeout}}
	// The watchdog uses SIGKILL, because an orderly shutdown takes seconds and the data is removed anyway.
	if err := p.prepare("KILL"); err != nil {
		return nil, err
	}
	if err := p.serve(ctx, home, java, &opts); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	opts.sayf("Pulsar: distribution %s, %s, admin %s", home, p.URL, p.AdminURL)
	return p, nil
}

func runningPulsar(ctx context.Context, opts Options, address string) (*PulsarServer, error) {
	admin := os.Getenv("PULSAR_ADMIN_URL")
	if admin == "" {
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("devenv: PULSAR_URL has to look like pulsar://host:6650, got %q", address)
		}
		admin = "http://" + net.JoinHostPort(u.Hostname(), "8080")
	}
	p := &PulsarServer{URL: address, AdminURL: strings.TrimSuffix(admin, "/")}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := p.healthy(ctx); err != nil {
		return nil, fmt.Errorf("devenv: the Pulsar of PULSAR_URL does not answer at its admin address (PULSAR_ADMIN_URL, else port 8080 of its host); "+
			"start it, or unset PULSAR_URL to have one started: %w", err)
	}
	opts.sayf("Pulsar: PULSAR_URL, %s, admin %s", p.URL, p.AdminURL)
	return p, nil
}

// serve starts a standalone Pulsar on free ports, with configuration, data and log in the server's folder.
func (p *PulsarServer) serve(ctx context.Context, home, java string, opts *Options) error {
	var ports [3]int
	for i := range ports {
		port, err := p.takePort()
		if err != nil {
			return err
		}
		ports[i] = port
	}
	broker, web, bookie := strconv.Itoa(ports[0]), strconv.Itoa(ports[1]), strconv.Itoa(ports[2])
	conf := filepath.Join(p.folder, "standalone.conf")
	if err := writeConf(filepath.Join(home, "conf", "standalone.conf"), conf, broker, web, opts.PulsarSettings); err != nil {
		return err
	}
	// Java unpacks native libraries into its temporary folder; this one is removed with the server.
	tmp := filepath.Join(p.folder, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("devenv: make Pulsar's temporary folder: %w", err)
	}
	options := "-Dpulsar.allocator.exit_on_oom=true -Dio.netty.recycler.maxCapacityPerThread=4096 -Djava.io.tmpdir=" + tmp
	if opts.Volatile {
		options += " -XX:TieredStopAtLevel=1" // optimized code takes long to compile, and tests end before it pays
	}
	p.command = func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(home, "bin", "pulsar"), "standalone", "--no-functions-worker", "--no-stream-storage",
			"--advertised-address", "127.0.0.1", "--bookkeeper-port", bookie,
			"--metadata-dir", filepath.Join(p.folder, "metadata"), "--bookkeeper-dir", filepath.Join(p.folder, "bookkeeper"))
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + p.folder, "JAVA_HOME=" + java,
			"PULSAR_STANDALONE_CONF=" + conf,
			"PULSAR_LOG_DIR=" + filepath.Join(p.folder, "logs"),
			"PULSAR_MEM=-Xms512m -Xmx1g -XX:MaxDirectMemorySize=1g",
			"PULSAR_GC_LOG=-Xlog:disable",
			"PULSAR_EXTRA_OPTS=" + options,
		}
		return cmd
	}
	p.URL, p.AdminURL = "pulsar://127.0.0.1:"+broker, "http://127.0.0.1:"+web
	p.ready = p.healthy
	return p.start(ctx)
}

// writeConf copies the distribution's configuration with the settings applied, and with all ports fixed and
// only on the loopback address.
func writeConf(from, to, brokerPort, webPort string, settings map[string]string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("devenv: read Pulsar's configuration: %w", err)
	}
	loopback, err := loopbackInterface()
	if err != nil {
		return err
	}
	conf := setProperties(setProperties(string(text), settings), map[string]string{
		"brokerServicePort": brokerPort,
		"webServicePort":    webPort,
		"bindAddress":       "127.0.0.1",
		"advertisedAddress": "127.0.0.1",
		// Without allowEphemeralPorts, 4.0.8 ignores --bookkeeper-port and chooses a port that may be in use at a
		// restart. Without the next setting the bookie listens on all interfaces.
		"allowEphemeralPorts": "true",
		"listeningInterface":  loopback,
		// Tests remove their namespaces by force.
		"forceDeleteNamespaceAllowed": "true",
	})
	if err := os.WriteFile(to, []byte(conf), 0o600); err != nil {
		return fmt.Errorf("devenv: write Pulsar's configuration: %w", err)
	}
	return nil
}

// setProperties replaces values in a properties file, and appends the missing ones.
func setProperties(text string, values map[string]string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "=")
		if _, ok := values[name]; !ok {
			b.WriteString(strings.TrimRight(line, "\n") + "\n")
		}
	}
	for name, value := range values {
		b.WriteString(name + "=" + value + "\n")
	}
	return b.String()
}

func loopbackInterface() (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("devenv: look for the loopback interface: %w", err)
	}
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback != 0 {
			return i.Name, nil
		}
	}
	return "", errors.New("devenv: this machine has no loopback interface")
}

// healthy returns nil when a message has made its way through the broker and the default namespace exists, which is
// made only after the broker reports that it is healthy.
func (p *PulsarServer) healthy(ctx context.Context) error {
	answer, err := p.Admin(ctx, http.MethodGet, "/brokers/health", "")
	if err != nil {
		return err
	}
	if text := strings.TrimSpace(string(answer)); text != "ok" {
		return fmt.Errorf("devenv: Pulsar's health check says %q", text)
	}
	_, err = p.Admin(ctx, http.MethodGet, "/namespaces/public/default", "")
	return err
}
