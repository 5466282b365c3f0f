package session

import (
	"context"
	"regexp"
	"strings"
	"sync"
)

// denials ends requests for which the user of the connection has no permission: the server reports a violation, and never answers. The zero value is
// ready.
type denials struct {
	mu     sync.Mutex
	asking map[*request]struct{}
	mute   error // why no answer can come
}

// request is a request that is under way.
type request struct {
	name string // the stream, which is a part of the subject of the request
	end  context.CancelCauseFunc
}

// watch returns a context for a request about a stream. It ends with the cause [ErrDenied] if the server reports a violation.
func (d *denials) watch(ctx context.Context, name string) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	r := &request{name: name, end: end}
	d.mu.Lock()
	if d.asking == nil {
		d.asking = map[*request]struct{}{}
	}
	d.asking[r] = struct{}{}
	if d.mute != nil {
		end(d.mute)
	}
	d.mu.Unlock()
	return ctx, func() {
		d.mu.Lock()
		delete(d.asking, r)
		d.mu.Unlock()
		end(nil)
	}
}

// deny ends the requests to a subject for which the user has no permission.
func (d *denials) deny(subject string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range d.asking {
		if strings.HasPrefix(subject, "$JS.") && (strings.Contains(subject+".", "."+r.name+".") || r.name == "") {
			r.end(err)
		}
	}
}

// silence ends all requests, and further ones, because no answer can come. nil allows further ones.
func (d *denials) silence(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mute = err
	if err == nil {
		return
	}
	for r := range d.asking {
		r.end(err)
	}
}

// quoted finds the subject in the text of a violation.
var quoted = regexp.MustCompile(`(Publish|Subscription) to "([^"]+)"`)
