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

	"github.com/oncebox/oncebox/console/internal/causes"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

const (
	fieldRate    = "rate"
	fieldCounted = "counted"

	// defaultRate is how many dead letters are treated in a second if the actor sets no rate.
	defaultRate = 100
	// maxRate is the largest rate that the actor can set, 0 apart, which means without a limit.
	maxRate = 100_000
	// maxBatch is how many dead letters are treated in one transaction at most. Their keys are locked until it ends.
	maxBatch = 500
	// patience is how long the browser may take to accept one line of progress.
	patience = time.Minute
)

// bulkView is the data of the page that shows how many dead letters a selection has, before all of them are treated.
type bulkView struct {
	Act       *letterAction
	Selection *selection
	Count     int64
	Rate      string
	Reason    string
	Wrong     string
	Back      string // the address of the list
	Query     string // the selection, as the query of an address
}

// askBulk counts the dead letters that would be treated, and asks for the reason.
func askBulk(v *visit) error {
	q := v.URL.Query()
	view, err := bulkOf(v, q)
	if err != nil {
		return err
	}
	view.Rate = strconv.Itoa(defaultRate)
	return v.show("bulk", view.Act.Title+" all that match", view)
}

// bulkOf reads the action and the selection from the query, and counts the dead letters.
func bulkOf(v *visit, q url.Values) (*bulkView, error) {
	d, err := letterActionOf(q.Get(fieldAction))
	if err != nil {
		return nil, invalid(err)
	}
	s, err := selected(v.Console, q, v.now)
	if err != nil {
		return nil, invalid(err)
	}
	if err := nameCause(v, &s); err != nil {
		return nil, err
	}
	view := &bulkView{Act: d, Selection: &s, Query: s.Values().Encode(), Back: "dead?" + s.Values().Encode()}
	switch {
	case s.Fingerprint != "":
		view.Back = causes.Href(causes.First(s.Fingerprint))
	case d.Action == operator.Retry:
		view.Back = pageStuck
	}
	if d.Action == operator.Retry {
		if err := hasBox(v.Console, ops.BoxInbox); err != nil {
			return nil, invalid(err)
		}
		view.Count, err = v.cfg.Inbox.Parked().RetryAll(v.Context(), s.Parked(), v.by(""), &operator.Bulk{DryRun: true})
		return view, err
	}
	view.Count, err = v.view().Dead().Count(v.Context(), s.Box, s.filter)
	return view, err
}

// runBulk treats all dead letters of a selection, and shows its progress in the answer. The run lives as long as the request: when the browser
// leaves, it ends after the present transaction. Earlier transactions stay committed.
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
		return invalid(fmt.Errorf("%s: %q is not a number", fieldCounted, v.PostForm.Get(fieldCounted)))
	}
	rate, wrongRate := rateOf(view.Rate)
	switch {
	case wrongRate != "":
		view.Wrong = wrongRate
	case reasonProblem(view.Reason) != "":
		view.Wrong = reasonProblem(view.Reason)
	// More than the actor has seen: the new letters may have another cause, and nobody decided about them. Fewer is fine, because they were treated
	// meanwhile.
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

// rateOf parses the number of dead letters per second. 0 means without a limit.
func rateOf(text string) (rate int, wrong string) {
	rate, err := strconv.Atoi(text)
	if err != nil || rate < 0 || rate > maxRate {
		return 0, fmt.Sprintf("%q is not a rate: give a number per second, at most %d, or 0 for no limit.", text, maxRate)
	}
	return rate, ""
}

// stream treats the dead letters and writes a line of progress after each transaction. It returns nil even if the run fails: the answer has begun, so the
// status cannot change any more, and the page itself says how the run ended.
func stream(v *visit, view *bulkView, rate int) error {
	out := &lines{v: v, total: view.Count, begun: time.Now(), rate: rate}
	if err := out.begin(view); err != nil {
		return err
	}
	done, err := treat(v, view, out)
	v.log.InfoContext(v.Context(), "oncebox: an operator acted on dead letters on the console", "actor", v.access.Actor, "action", view.Act.Action,
		"selection", view.Query, "done", done, "error", err)
	out.end(view, done, err)
	return nil
}

func treat(v *visit, view *bulkView, out *lines) (int64, error) {
	ctx, stop := context.WithCancelCause(v.Context())
	defer stop(nil)
	// A batch never exceeds the rate. Otherwise a rate of 10 a second would treat 500 at once and then pause for 50 seconds.
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
	// The cause says why the run was cancelled, for example that the browser has left. The error of the statement says only that it was cancelled.
	if err != nil && context.Cause(ctx) != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return done, err
}

// lines writes the page of a run while it goes on.
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
	// Stopped is why the run ended early, "" if it is complete.
	Stopped string
}

func (l *lines) begin(view *bulkView) error {
	l.v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	l.v.w.Header().Set("X-Accel-Buffering", "no") // nginx would otherwise collect the answer, and show nothing until the end
	l.v.w.WriteHeader(http.StatusOK)
	if err := l.v.skin.Part(l.v.w, "run", "begin", l.v.page(view.Act.Title+" all that match", view)); err != nil {
		return fmt.Errorf("console: begin the page of a run: %w", err)
	}
	return l.flush()
}

// progress writes how many dead letters are done, and waits to keep to the rate. It fails if the browser has left.
func (l *lines) progress(ctx context.Context, done int64) error {
	err := l.v.skin.Part(l.v.w, "run", "line", &runLine{done, l.total, time.Since(l.begun)})
	if err == nil {
		err = l.flush()
	}
	if err != nil || l.rate == 0 || done >= l.total {
		return err
	}
	// The pause is computed from the begin of the run, so a slow transaction is made up for and the mean rate is kept.
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

// flush sends the lines written so far. It moves the server's write deadline, because this answer takes longer than others.
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
	if err := l.v.skin.Part(l.v.w, "run", "end", end); err != nil {
		return // the browser has left
	}
	_ = l.flush()
}
