package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

const (
	fieldRate    = "rate"
	fieldCounted = "counted"

	// defaultRate is how many are treated in a second unless the actor says otherwise.
	defaultRate = 100
	// maxRate bounds what can be typed; 0 is no bound.
	maxRate = 100_000
	// maxBatch is how many are treated in one transaction at most, in which their keys stand still.
	maxBatch = 500
	// patience is how long a browser may take to accept one line of the progress.
	patience = time.Minute
)

// bulkView is the page that says how many dead letters a selection has before all of them are treated.
type bulkView struct {
	Act       *letterAction
	Selection *selection
	Count     int64
	Rate      string
	Reason    string
	Wrong     string
	Back      string // the address of the list
	Query     string // the selection as it stands in an address
}

// askBulk counts what would be treated.
func askBulk(v *visit) error {
	q := v.URL.Query()
	view, err := bulkOf(v, q)
	if err != nil {
		return err
	}
	view.Rate = strconv.Itoa(defaultRate)
	return v.show("bulk", view.Act.Title+" all that match", view)
}

// bulkOf reads what is to be done with which selection, and counts.
func bulkOf(v *visit, q url.Values) (*bulkView, error) {
	d, err := letterActionOf(q.Get(fieldAction))
	if err != nil {
		return nil, invalid(err)
	}
	s, err := selected(v.Console, q, v.now)
	if err != nil {
		return nil, invalid(err)
	}
	view := &bulkView{Act: d, Selection: &s, Query: s.Values().Encode(), Back: "dead?" + s.Values().Encode()}
	if d.Action == operator.Retry {
		view.Back = pageStuck
		if err := hasBox(v.Console, ops.BoxInbox); err != nil {
			return nil, invalid(err)
		}
		view.Count, err = v.cfg.Inbox.Parked().RetryAll(v.Context(), s.Parked(), v.by(""), &operator.Bulk{DryRun: true})
		return view, err
	}
	view.Count, err = v.view().Dead().Count(v.Context(), s.Box, s.filter)
	return view, err
}

// runBulk treats all that a selection has, and says how far it is while it does. The request is the run: when the browser leaves, it
// ends after the transaction under way, and what was treated stays so.
func runBulk(v *visit) error {
	q, err := url.ParseQuery(v.PostForm.Get("selection"))
	if err != nil {
		return invalid(err)
	}
	q.Set(fieldAction, v.PostForm.Get(fieldAction))
	view, err := bulkOf(v, q)
	if err != nil {
		return err
	}
	view.Reason, view.Rate = strings.TrimSpace(v.PostForm.Get(fieldReason)), strings.TrimSpace(v.PostForm.Get(fieldRate))
	shown, err := strconv.ParseInt(v.PostForm.Get(fieldCounted), 10, 64)
	if err != nil {
		return invalid(fmt.Errorf("%s: %q is no number", fieldCounted, v.PostForm.Get(fieldCounted)))
	}
	rate, wrongRate := rateOf(view.Rate)
	switch {
	case wrongRate != "":
		view.Wrong = wrongRate
	case reasonProblem(view.Reason) != "":
		view.Wrong = reasonProblem(view.Reason)
	case view.Count > shown:
		view.Wrong = fmt.Sprintf("There are more since you were shown %d. Nothing was changed: look at the new number, and send the form again.", shown)
	case view.Count == 0:
		view.Wrong = "Nothing matches any more, so nothing was changed."
	}
	if view.Wrong != "" {
		return v.write(http.StatusUnprocessableEntity, "bulk", v.page(view.Act.Title+" all that match", view))
	}
	return stream(v, view, rate)
}

// rateOf reads how many may be treated in a second. 0: as many as can be.
func rateOf(text string) (rate int, wrong string) {
	rate, err := strconv.Atoi(text)
	if err != nil || rate < 0 || rate > maxRate {
		return 0, fmt.Sprintf("%q is no rate: give a number per second, at most %d, or 0 for no bound.", text, maxRate)
	}
	return rate, ""
}

// stream does it and writes one line after each transaction.
func stream(v *visit, view *bulkView, rate int) error {
	out := &lines{v: v, total: view.Count, begun: time.Now(), rate: rate}
	if err := out.begin(view); err != nil {
		return err
	}
	done, err := treat(v, view, out)
	v.log.InfoContext(v.Context(), "oncebox: dead letters were treated on the console", "actor", v.access.Actor, "action", view.Act.Action,
		"selection", view.Query, "done", done, "error", err)
	out.end(view, done, err)
	return nil
}

func treat(v *visit, view *bulkView, out *lines) (int64, error) {
	ctx, stop := context.WithCancelCause(v.Context())
	defer stop(nil)
	batch := maxBatch
	if out.rate > 0 {
		batch = min(batch, out.rate)
	}
	progress := func(done int64) {
		if err := out.progress(ctx, done); err != nil {
			stop(err)
		}
	}
	var done int64
	var err error
	by, bulk := v.by(view.Reason), &operator.Bulk{BatchSize: batch, Progress: progress}
	if view.Act.Action == operator.Retry {
		done, err = v.cfg.Inbox.Parked().RetryAll(ctx, view.Selection.Parked(), by, bulk)
	} else {
		done, err = v.view().Dead().ActOnAll(ctx, view.Act.Action, view.Selection.Box, view.Selection.filter, by, bulk)
	}
	if err != nil && context.Cause(ctx) != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return done, err
}

// lines writes the page of a run as the run goes on.
type lines struct {
	v     *visit
	total int64
	begun time.Time
	rate  int
}

// runLine is one line of progress.
type runLine struct {
	Done, Total int64
	After       time.Duration
}

// runEnd is the last part of the page of a run.
type runEnd struct {
	View *bulkView
	Done int64
	// Stopped says why it ended before its end, "" if it did not.
	Stopped string
}

func (l *lines) begin(view *bulkView) error {
	l.v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	l.v.w.Header().Set("X-Accel-Buffering", "no") // a proxy that collects answers would show nothing until the end
	l.v.w.WriteHeader(http.StatusOK)
	if err := l.v.templates["run"].ExecuteTemplate(l.v.w, "begin", l.v.page(view.Act.Title+" all that match", view)); err != nil {
		return fmt.Errorf("console: begin the page of a run: %w", err)
	}
	return l.flush()
}

// progress says how many are done, and waits as the rate wants it. An error means that nobody reads any more.
func (l *lines) progress(ctx context.Context, done int64) error {
	err := l.v.templates["run"].ExecuteTemplate(l.v.w, "line", &runLine{done, l.total, time.Since(l.begun)})
	if err == nil {
		err = l.flush()
	}
	if err != nil || l.rate == 0 || done >= l.total {
		return err
	}
	due := l.begun.Add(time.Duration(float64(done) / float64(l.rate) * float64(time.Second)))
	pause := time.NewTimer(time.Until(due))
	defer pause.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-pause.C:
		return nil
	}
}

// flush sends what was written. It extends the server's deadline, because this answer goes on for longer than usual.
func (l *lines) flush() error {
	control := http.NewResponseController(l.v.w)
	if err := control.SetWriteDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if err := control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func (l *lines) end(view *bulkView, done int64, err error) {
	end := &runEnd{View: view, Done: done}
	if err != nil {
		end.Stopped = "It was stopped, and what is above stays done. Send the form again for the rest."
		if l.v.Context().Err() == nil {
			end.Stopped = "An error ended it; the log of this process says which. What is above stays done. Send the form again for the rest."
		}
	}
	if err := l.v.templates["run"].ExecuteTemplate(l.v.w, "end", end); err != nil {
		return // nobody reads any more
	}
	_ = l.flush()
}
