package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/oncebox/oncebox/idempotency"
)

// mostUnknown is how many steps of unknown outcome a page shows, the oldest first.
const mostUnknown = 100

// keysView is the page of steps whose outcome nobody knows.
type keysView struct {
	Tenant string
	Steps  []idempotency.Unknown
	More   bool
	Notice string
}

// keys lists the steps of requests whose outcome has to be found out.
func (c *Console) keys(v *visit) error {
	view := &keysView{Tenant: v.URL.Query().Get(fieldTenant)}
	var err error
	if view.Steps, err = c.cfg.Idempotency.Unknown(v.Context(), c.db, view.Tenant, mostUnknown+1); err != nil {
		return err
	}
	if len(view.Steps) > mostUnknown {
		view.Steps, view.More = view.Steps[:mostUnknown], true
	}
	if v.URL.Query().Get(fieldDone) != "" {
		view.Notice = "The outcome was written down. The next retry of the request goes on from there."
	}
	return v.show("keys", "Keys of requests", view)
}

// resolveKey writes down what an operator has found out about a step.
func (c *Console) resolveKey(v *visit) error {
	form := v.PostForm
	epoch, err := strconv.Atoi(form.Get("epoch"))
	if err != nil {
		return invalid(fmt.Errorf("epoch: %q is no number", form.Get("epoch")))
	}
	micro, err := strconv.ParseInt(form.Get("begun"), 10, 64)
	if err != nil {
		return invalid(fmt.Errorf("begun: %q is no number", form.Get("begun")))
	}
	reason := strings.TrimSpace(form.Get(fieldReason))
	if wrong := reasonProblem(reason); wrong != "" {
		return &problem{http.StatusUnprocessableEntity, "The reason is missing or too long", "Nothing was changed. " + wrong}
	}
	outcome, wrong := outcomeOf(form.Get("outcome"), form.Get("result"))
	if wrong != "" {
		return &problem{http.StatusUnprocessableEntity, "The outcome is not complete", "Nothing was changed. " + wrong}
	}
	step := idempotency.Unknown{
		Key: form.Get("key"), Tenant: form.Get(fieldTenant), Step: form.Get("step"), Epoch: epoch, BegunAt: time.UnixMicro(micro),
	}
	resolved, err := c.cfg.Idempotency.Resolve(v.Context(), c.db, step, outcome, idempotency.By{Actor: v.access.Actor, Reason: reason})
	if err != nil {
		return err
	}
	if !resolved {
		return &problem{
			http.StatusConflict, "The outcome is known already, or a process works on the key",
			lookAgain,
		}
	}
	v.log.InfoContext(v.Context(), "oncebox: the outcome of a step was written down on the console", "actor", v.access.Actor,
		"tenant", step.Tenant, "key", step.Key, "step", step.Step, "outcome", form.Get("outcome"))
	v.redirect("keys?done=1")
	return nil
}

// outcomeOf reads what an operator has found out. wrong says what is missing, "" if nothing is.
func outcomeOf(outcome, result string) (o idempotency.Outcome, wrong string) {
	switch outcome {
	case "not_done":
		return idempotency.StepNotDone(), ""
	case "done":
		result = strings.TrimSpace(result)
		if !json.Valid([]byte(result)) {
			return o, "Say as JSON what the step would have returned: the request goes on with it. null, if it returns nothing."
		}
		return idempotency.StepDone(json.RawMessage(result)), ""
	default:
		return o, "Say whether the step was done."
	}
}
