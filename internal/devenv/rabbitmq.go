package devenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// RabbitMQServer is a running RabbitMQ. Its user guest has all rights, and the password guest.
type RabbitMQServer struct {
	server

	// URL is the address for clients, amqp://guest:guest@host:port.
	URL string

	// TLSURL is the address for clients with TLS, amqps://guest:guest@127.0.0.1:port; empty without the setting ssl_options.certfile, and for a server
	// that was found running. The login by certificate (EXTERNAL) is possible there, too.
	TLSURL string

	// ManagementURL is the address of the management plugin, http://guest:guest@host:port. That of a server that was found running is AMQP_MANAGEMENT_URL,
	// else port 15672 of the same host.
	ManagementURL string

	home rabbitMQHome
	env  []string // of the server and its tools

	// names is the program in which the nodes of a machine find each other, epmd. RabbitMQ does not start without it.
	names server
}

// RabbitMQ finds or starts a RabbitMQ: the server that AMQP_URL names, else a server started from the Debian package, which is installed, or in the
// user's cache folder, or unpacked there once (35 MB). The caller stops it.
func RabbitMQ(ctx context.Context, options *Options) (*RabbitMQServer, error) {
	opts := withDefaults(options)
	if address := os.Getenv("AMQP_URL"); address != "" && !opts.Own {
		opts.sayf("RabbitMQ: AMQP_URL")
		return &RabbitMQServer{URL: address, ManagementURL: managementURL(address)}, nil
	}
	home, err := provideRabbitMQ(ctx, opts)
	if err != nil {
		return nil, err
	}
	r := &RabbitMQServer{
		server: server{name: "rabbitmq", timeout: opts.StartTimeout, volatile: opts.Volatile}, names: server{name: "epmd", timeout: opts.StartTimeout},
	}
	// The data is removed anyway, so nothing ends in good order.
	if err := errors.Join(r.prepare("KILL"), r.names.prepare("KILL")); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	if err := r.serve(ctx, home, opts.RabbitMQSettings); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	opts.sayf("RabbitMQ: package %s, %s", home, r.URL)
	return r, nil
}

func managementURL(broker string) string {
	u, err := url.Parse(broker)
	if set := os.Getenv("AMQP_MANAGEMENT_URL"); set != "" || err != nil {
		return set
	}
	return (&url.URL{Scheme: "http", User: u.User, Host: net.JoinHostPort(u.Hostname(), "15672")}).String()
}

// serve starts a node on free ports, with configuration, data and log in the server's folder.
func (r *RabbitMQServer) serve(ctx context.Context, home rabbitMQHome, settings map[string]string) error {
	var ports [5]int
	for i := range ports {
		port, err := r.takePort()
		if err != nil {
			return err
		}
		ports[i] = port
	}
	clients, management, nodes, epmd, secure := ports[0], ports[1], ports[2], ports[3], ports[4]
	address := func(port int) string { return "guest:guest@" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	conf := map[string]string{
		"listeners.tcp.default": fmt.Sprintf("127.0.0.1:%d", clients), "management.tcp.ip": "127.0.0.1", "management.tcp.port": strconv.Itoa(management),
		"log.file": "false", "log.console": "true", "log.console.level": "warning", "disk_free_limit.absolute": "100MB",
	}
	plugins := "[rabbitmq_management].\n"
	if settings["ssl_options.certfile"] != "" {
		conf["listeners.ssl.default"], r.TLSURL = fmt.Sprintf("127.0.0.1:%d", secure), "amqps://"+address(secure)
		conf["auth_mechanisms.1"], conf["auth_mechanisms.2"], conf["ssl_cert_login_from"] = "PLAIN", "EXTERNAL", "common_name"
		plugins = "[rabbitmq_management,rabbitmq_auth_mechanism_ssl].\n"
	}
	maps.Copy(conf, settings)
	file := func(name, text string) (string, error) {
		path := filepath.Join(r.folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("devenv: configure RabbitMQ: %w", err)
		}
		return path, nil
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&text, "%s = %s\n", name, conf[name])
	}
	confFile, err := file("rabbitmq.conf", text.String())
	if err != nil {
		return err
	}
	pluginsFile, err := file("enabled_plugins", plugins)
	if err != nil {
		return err
	}
	r.home, r.env = home, []string{
		"PATH=" + home.programs() + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + r.folder, // HOME has the cookie of the node
		"ERL_EPMD_PORT=" + strconv.Itoa(epmd), "ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=node" + strconv.Itoa(nodes) + "@localhost", "RABBITMQ_DIST_PORT=" + strconv.Itoa(nodes),
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(r.folder, "data"), "RABBITMQ_LOG_BASE=" + filepath.Join(r.folder, "log"),
		"RABBITMQ_CONFIG_FILE=" + confFile, "RABBITMQ_ENABLED_PLUGINS_FILE=" + pluginsFile, "RABBITMQ_CONF_ENV_FILE=/dev/null",
		"ERL_CRASH_DUMP=" + filepath.Join(r.folder, "crash.dump"), // it would be written into the folder of the test
		"RABBITMQ_ALLOW_INPUT=1",                                  // the script becomes the server, and is no parent that outlives it
		"LD_LIBRARY_PATH=" + home.libraries(),
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-start_epmd false -noinput -kernel inet_dist_use_interface {127,0,0,1}",
	}
	r.names.command = func() *exec.Cmd {
		cmd := exec.Command(filepath.Join(home.programs(), "epmd"), "-port", strconv.Itoa(epmd))
		cmd.Env = r.env
		return cmd
	}
	r.names.ready = listens(epmd)
	r.command = func() *exec.Cmd {
		cmd := exec.Command(home.server())
		cmd.Env = r.env
		return cmd
	}
	r.URL, r.ManagementURL = "amqp://"+address(clients), "http://"+address(management)
	r.ready = func(ctx context.Context) error {
		_, err := r.Manage(ctx, http.MethodGet, "/aliveness-test/%2F", "")
		return err
	}
	if err := r.names.start(ctx); err != nil {
		return err
	}
	return r.start(ctx)
}

// Control runs rabbitmqctl for a server that was started here.
func (r *RabbitMQServer) Control(ctx context.Context, args ...string) error {
	if r.dog == nil {
		return ErrNotStartedHere
	}
	cmd := exec.CommandContext(ctx, r.home.control(), args...)
	cmd.Dir, cmd.Env = r.folder, r.env
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("devenv: rabbitmqctl %s: %w: %s", strings.Join(args, " "), err, text)
	}
	return nil
}

// Stop ends the server and removes its data, unless it was found running. A second call does nothing.
func (r *RabbitMQServer) Stop() error { return errors.Join(r.server.Stop(), r.names.Stop()) }

func listens(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// Manage sends a request to a path below /api of the management plugin, with a JSON body if body is not empty, and decodes the answer. The error for
// a status other than 2xx has the broker's reason.
func (r *RabbitMQServer) Manage(ctx context.Context, method, path, body string) (answer any, err error) {
	ctx, cancel := context.WithTimeout(ctx, adminPatience)
	defer cancel()
	u, err := url.Parse(r.ManagementURL + "/api" + path)
	if err != nil || u.User == nil {
		return nil, fmt.Errorf("devenv: RabbitMQ's management plugin at %q: the server was not started here: %w", r.ManagementURL, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("devenv: ask RabbitMQ: %w", err)
	}
	req.Close = true // leaves no connection, and so no goroutine, behind
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("devenv: ask RabbitMQ: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return nil, fmt.Errorf("devenv: %s %s: %w", method, path, err)
	case resp.StatusCode/100 != 2:
		return nil, fmt.Errorf("devenv: %s %s: %s: %s", method, path, resp.Status, text)
	case len(text) == 0:
		return nil, nil
	}
	return answer, json.Unmarshal(text, &answer)
}

// rabbitMQHome is the folder below which the package has its files: "/" if it is installed.
type rabbitMQHome string

func (h rabbitMQHome) script(name string) string {
	return filepath.Join(string(h), "usr", "lib", "rabbitmq", "bin", name)
}
func (h rabbitMQHome) server() string   { return h.script("rabbitmq-server") }
func (h rabbitMQHome) control() string  { return h.script("rabbitmqctl") }
func (h rabbitMQHome) erlang() string   { return filepath.Join(string(h), "usr", "lib", "erlang") }
func (h rabbitMQHome) programs() string { return filepath.Join(h.erlang(), "bin") }

// libraries lists the folders of libraries that were unpacked with it.
func (h rabbitMQHome) libraries() string {
	if h == "/" {
		return ""
	}
	folders, err := filepath.Glob(filepath.Join(string(h), "usr", "lib", "*-linux-gnu*"))
	if err != nil {
		return ""
	}
	return strings.Join(folders, string(os.PathListSeparator))
}

// provideRabbitMQ returns an installed RabbitMQ, or one in the user's cache folder. The first call unpacks it there: installing it would start a
// service on the machine, and needs root.
func provideRabbitMQ(ctx context.Context, opts Options) (rabbitMQHome, error) {
	if installed := rabbitMQHome("/"); exists(installed.server()) && exists(installed.programs()) {
		return installed, nil
	}
	folder, err := cached(ctx, "rabbitmq", opts, func(w *workshop) error { return unpackRabbitMQ(ctx, w, opts) })
	return rabbitMQHome(folder), err
}

// rabbitMQHint is what a person can do if the package cannot be had.
const rabbitMQHint = "install it (apt-get install rabbitmq-server), or set AMQP_URL to the address of a running one"

// unpackRabbitMQ downloads and unpacks the package, with the packages that it needs and this machine lacks.
func unpackRabbitMQ(ctx context.Context, w *workshop, opts Options) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("devenv: RabbitMQ is missing: %s", rabbitMQHint)
	}
	opts.sayf("RabbitMQ: not on this machine, fetching the package of this system (35 MB, once)")
	missing := func() ([]string, error) { return missingPackages(ctx, "rabbitmq-server") }
	packages, err := missing()
	if err != nil && os.Geteuid() == 0 {
		if err = w.run(ctx, opts, "apt-get", "-q", "-o", "DPkg::Lock::Timeout=120", "update"); err == nil {
			packages, err = missing()
		}
	}
	if err != nil {
		return fmt.Errorf("devenv: RabbitMQ is missing: %s: %w", rabbitMQHint, err)
	}
	if err := w.run(ctx, opts, "apt-get", append([]string{"-q", "download"}, packages...)...); err != nil {
		return fmt.Errorf("devenv: fetch RabbitMQ: %s: %w", rabbitMQHint, err)
	}
	archives, err := filepath.Glob(filepath.Join(w.folder, "*.deb"))
	if err != nil {
		return fmt.Errorf("devenv: fetch RabbitMQ: %w", err)
	}
	root := filepath.Join(w.folder, unpacked)
	for _, archive := range archives {
		if err := w.run(ctx, opts, "dpkg-deb", "-x", archive, root); err != nil {
			return fmt.Errorf("devenv: unpack RabbitMQ: %w", err)
		}
	}
	return relocateErlang(rabbitMQHome(root))
}

// missingPackages lists a package with the ones that it needs, as far as they are not installed.
func missingPackages(ctx context.Context, name string) (packages []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	text, err := exec.CommandContext(ctx, "apt-get", "install", "--simulate", "--no-install-recommends", name).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get knows no package %s: %w", name, err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "Inst "); ok {
			packages = append(packages, strings.Fields(rest)[0])
		}
	}
	return packages, nil
}

// relocateErlang makes Debian's launcher find Erlang where it was unpacked: it has the place of an installed one in it.
func relocateErlang(home rabbitMQHome) error {
	launcher := filepath.Join(home.programs(), "erl")
	text, err := os.ReadFile(launcher)
	if err == nil {
		moved := strings.ReplaceAll(string(text), "ROOTDIR=/usr/lib/erlang", `ROOTDIR=$(dirname "$(dirname "$(readlink -f "$0")")")`)
		err = os.WriteFile(launcher, []byte(moved), 0o755)
	}
	if err != nil {
		return fmt.Errorf("devenv: prepare Erlang: %w", err)
	}
	return nil
}
