package kills

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// serviceVariable makes a process of this program one of the service.
const serviceVariable = "ORDERS_TEST_SERVICE"

// Serves reports whether a [Fleet] has started this process. Then it has to run the service, and nothing else.
func Serves() bool { return os.Getenv(serviceVariable) != "" }

// process is one of the service: this program once more.
type process struct {
	name   string
	cmd    *exec.Cmd
	output *output
	exited chan struct{}
	err    error // why it exited, once it has
}

// output keeps the last lines that a process wrote, and finds the address in them that it listens on.
type output struct {
	mu      sync.Mutex
	partial []byte
	lines   []string
	addr    string
}

var listening = regexp.MustCompile(`msg="oncebox: the process listens".* addr=(\S+)`)

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		line, rest, whole := bytes.Cut(o.partial, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		o.partial = rest
		if found := listening.FindSubmatch(line); found != nil {
			o.addr = string(found[1])
		}
		o.lines = append(o.lines, string(line))
		o.lines = o.lines[max(0, len(o.lines)-60):]
	}
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

func (o *output) address() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.addr
}

// launch starts a process, which shows its races where this one does.
func launch(l *leash, name, part string, env []string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, output: &output{}, exited: make(chan struct{})}
	p.cmd = exec.Command(self) //nolint:gosec,noctx // this program; it is killed by hand
	p.cmd.Env = append(os.Environ(), append(env, serviceVariable+"=1", "ONCEBOX_SERVE_ADDR=127.0.0.1:0", "ONCEBOX_SERVE_PARTS="+part)...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	l.began(p.pid())
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
		l.ended(p.pid())
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// owner is a pattern for the name under which it owns lanes.
func (p *process) owner() string { return fmt.Sprintf("%%-%d-%%", p.pid()) }

// awaitReady waits until the process says that it can do its work.
func (p *process) awaitReady(ctx context.Context) error {
	return eventually(ctx, p.name+" to be ready", func(ctx context.Context) error {
		select {
		case <-p.exited:
			return errors.New("it exited")
		default:
		}
		addr := p.output.address()
		if addr == "" {
			return errors.New("it does not listen yet")
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			reason, err := io.ReadAll(resp.Body)
			return errors.Join(fmt.Errorf("%s: %s", resp.Status, reason), err)
		}
		return nil
	})
}

// kill ends it as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone
	<-p.exited
}

// terminate asks it to stop, and reports whether it stopped cleanly.
func (p *process) terminate(ctx context.Context) error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		return fmt.Errorf("%s did not stop: %w", p.name, ctx.Err())
	}
	if p.err != nil {
		return fmt.Errorf("%s did not stop cleanly: %w\n%s", p.name, p.err, p.output.tail())
	}
	return nil
}
