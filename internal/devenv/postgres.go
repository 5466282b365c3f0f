package devenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a running PostgreSQL.
type PostgresServer struct {
	server

	// URL is the connection string of a role that may create schemas and databases.
	URL string

	port           int
	settings       map[string]string
	programs, data string
}

// Postgres finds or starts a PostgreSQL. The caller stops it.
func Postgres(ctx context.Context, options *Options) (*PostgresServer, error) {
	opts := withDefaults(options)
	if dsn, variable := opts.runningPostgres(); dsn != "" {
		return runningPostgres(ctx, opts, dsn, variable)
	}
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	p := &PostgresServer{server: server{name: "postgresql", as: as, volatile: opts.Volatile, timeout: opts.StartTimeout}, settings: opts.settings()}
	if err := p.prepare("QUIT"); err != nil {
		return nil, err
	}
	programs, err := findPrograms(ctx, as)
	origin := "binaries on this machine, " + programs
	if errors.Is(err, errNoPrograms) {
		programs, err = fetchPrograms(ctx, opts)
		origin = "binaries in the user's cache folder, " + embeddedVersion
	}
	if err == nil {
		err = p.serve(ctx, programs)
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	opts.sayf("PostgreSQL: %s, port %d", origin, p.port)
	return p, nil
}

func runningPostgres(ctx context.Context, opts Options, dsn, variable string) (*PostgresServer, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("devenv: %s: %w", variable, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := answers(ctx, dsn); err != nil {
		return nil, fmt.Errorf("devenv: the PostgreSQL of %s does not answer; start it, or unset %[1]s to have one started: %w", variable, err)
	}
	opts.sayf("PostgreSQL: %s, %s port %d", variable, cfg.Host, cfg.Port)
	return &PostgresServer{URL: dsn}, nil
}

// serve makes a database cluster in the server's folder and starts the server on it.
func (p *PostgresServer) serve(ctx context.Context, programs string) error {
	programs, err := p.within(programs)
	if err != nil {
		return err
	}
	port, err := p.takePort()
	if err != nil {
		return err
	}
	p.port, p.programs, p.data = port, programs, filepath.Join(p.folder, "data")
	// The password keeps other users of this machine from using the superuser over the loopback address.
	password := rand.Text()
	if err := p.initCluster(ctx, password); err != nil {
		return err
	}
	p.listen(url.UserPassword("oncebox", password))
	return p.start(ctx)
}

// listen sets how the server is started and reached.
func (p *PostgresServer) listen(as *url.Userinfo) {
	args := []string{
		"-D", p.data, "-p", strconv.Itoa(p.port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=" + p.folder,
		"-c", "max_connections=400",
		"-c", "shared_buffers=128MB",
		"-c", "max_wal_size=1GB",
	}
	for name, value := range p.settings {
		args = append(args, "-c", name+"="+value)
	}
	p.command = func() *exec.Cmd { return postgresCommand(filepath.Join(p.programs, "postgres"), args...) }
	p.URL = (&url.URL{
		Scheme: "postgres", User: as, Host: "127.0.0.1:" + strconv.Itoa(p.port), Path: "/postgres", RawQuery: "sslmode=disable",
	}).String()
	p.ready = func(ctx context.Context) error { return answers(ctx, p.URL) }
}

// within returns the folder of the programs. If the server's user cannot reach it, because root's cache folder is
// closed to others, it copies them into the server's folder.
func (p *PostgresServer) within(programs string) (string, error) {
	if p.as.reaches(programs) {
		return programs, nil
	}
	copied := filepath.Join(p.folder, "programs")
	if err := os.CopyFS(copied, os.DirFS(filepath.Dir(programs))); err != nil {
		return "", fmt.Errorf("devenv: copy PostgreSQL to where its user can reach it: %w", err)
	}
	return filepath.Join(copied, filepath.Base(programs)), p.as.own(copied)
}

func (p *PostgresServer) initCluster(ctx context.Context, password string) error {
	secret := filepath.Join(p.folder, "password")
	if err := os.WriteFile(secret, []byte(verifier(password)+"\n"), 0o600); err != nil {
		return fmt.Errorf("devenv: write the password for initdb: %w", err)
	}
	defer os.Remove(secret)
	if err := p.as.own(secret); err != nil {
		return err
	}
	return p.run(ctx, postgresCommand(filepath.Join(p.programs, "initdb"), "--pgdata", p.data, "--no-sync",
		"--username", "oncebox", "--pwfile", secret, "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale"))
}

// postgresCommand makes a command without this process's environment: PGDATA, PGPORT and similar variables
// would change what the programs do.
func postgresCommand(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	return cmd
}

func answers(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}
