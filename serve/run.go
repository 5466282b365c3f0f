package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Run runs the service until ctx is done, and then ends it as after SIGTERM. It returns nil if the service was only told to end. It returns an error if a
// setting cannot be used, if the service could not start, if a part failed for good, or if it did not end within [Config].EndTimeout.
func Run(ctx context.Context, s Service) error {
	return run(ctx, s, func(*process) {})
}

// run is [Run]; known is called when the settings are known.
func run(ctx context.Context, s Service, known func(*process)) error {
	p, err := newProcess(s)
	if err == nil {
		known(p)
		err = p.run(ctx)
	}
	if closed := s.End(); closed != nil {
		err = errors.Join(err, fmt.Errorf("serve: Service.Close: %w", closed))
	}
	return err
}

func (p *process) run(ctx context.Context) error {
	working, fail := context.WithCancelCause(ctx) // ends with ctx, or with the first failure
	defer fail(nil)
	if err := p.observe(ctx); err != nil {
		return err
	}
	w, err := p.listen(working)
	if err != nil {
		return errors.Join(err, p.close(ctx))
	}
	w.serve(fail)
	p.log.InfoContext(ctx, "oncebox: the process listens", w.attrs()...)
	parts := p.work(working, w, fail)
	<-working.Done()

	failure := context.Cause(working)
	if ctx.Err() != nil && errors.Is(failure, context.Cause(ctx)) {
		p.log.InfoContext(ctx, "oncebox: the process ends", "within", p.cfg.EndTimeout)
		failure = nil
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.EndTimeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.end(limit, w, parts) }()
	select {
	case err := <-ended:
		return errors.Join(failure, err)
	case <-limit.Done():
		return errors.Join(failure, fmt.Errorf("serve: the process did not end within %s, so what is under way is left to other processes: "+
			"give it more time with %sEND_TIMEOUT", p.cfg.EndTimeout, prefix))
	}
}

// running is the work of a process that was set up.
type running struct {
	stop  context.CancelFunc
	ended chan struct{} // closed when App.Run has returned
}

// work sets the service up, runs its parts and lets requests in. A failure, also of the parts later on, goes to fail.
func (p *process) work(ctx context.Context, w *web, fail context.CancelCauseFunc) *running {
	// The parts go on while requests are being answered, so they do not end with ctx.
	lasting, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{stop: stop, ended: make(chan struct{})}
	requests, page, err := p.open(ctx)
	if err != nil {
		close(r.ended)
		fail(p.advise(err)) // without effect if ctx is done: then the error is that of a wait that ended
		return r
	}
	go func() {
		defer close(r.ended)
		fail(p.advise(p.wired.Load().Run(lasting, p.parts()...)))
	}()
	w.letIn(p.around(requests), page)
	p.log.InfoContext(ctx, "oncebox: the service runs", "source", p.app.UoW.Source, "parts", strings.Join(p.cfg.Parts, ","))
	if p.service.Started != nil {
		p.service.Started(w.addr())
	}
	return r
}

// end ends requests first, because they record events, then relay and consumers, and then what both have used.
func (p *process) end(ctx context.Context, w *web, parts *running) error {
	p.ending.Store(true)
	limit := p.cfg.EndTimeout
	if p.cfg.has(Relay) || p.cfg.has(Consumers) {
		limit /= 2
	}
	errs := []error{w.endRequests(ctx, limit)}
	parts.stop()
	<-parts.ended
	errs = append(errs, w.endAdmin(ctx))
	return errors.Join(append(errs, p.close(ctx))...)
}

// close ends what was opened, the latest first.
func (p *process) close(ctx context.Context) error {
	var errs []error
	for _, closer := range slices.Backward(p.closers) {
		errs = append(errs, closer(ctx))
	}
	return errors.Join(errs...)
}
