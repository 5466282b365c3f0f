package frame

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// cookie keeps in the browser that pages do not load themselves again.
	cookie     = "oncebox_refresh"
	cookieLife = 365 * 24 * time.Hour

	// The fields of the address that turns it off or on.
	fieldTo   = "to"
	fieldBack = "back"
	off       = "off"
	on        = "on"
)

// Live is how a page loads itself again, without a script: by a meta element.
type Live struct {
	// On is false if the actor has turned it off in this browser.
	On bool
	// Every is the pause.
	Every time.Duration
	// Content is that of the meta element: the pause in seconds, and what is loaded, if that is another address.
	Content string
	// Switch is the address that turns it off or on.
	Switch string
}

// NewLive returns how the requested page loads itself again. once are the fields of its address that report the last action: they are shown once.
// switchPage is the name of the page that turns it off or on.
func NewLive(r *http.Request, page, switchPage string, every time.Duration, once ...string) *Live {
	l := &Live{On: true, Every: every, Content: strconv.Itoa(int(every / time.Second))}
	if kept, err := r.Cookie(cookie); err == nil && kept.Value == off {
		l.On = false
	}
	q := r.URL.Query()
	again := Address(page, Without(q, once...))
	if again != Address(page, q) {
		l.Content += "; url=" + again
	}
	to := off
	if !l.On {
		to = on
	}
	l.Switch = Address(switchPage, url.Values{fieldTo: {to}, fieldBack: {again}})
	return l
}

// Switch keeps in the browser what the address of [Live.Switch] asks for. It returns the page to go back to, and its query. Only these two parts of the
// address are used, so no link can lead to another site. The caller checks that there is such a page.
func Switch(w http.ResponseWriter, r *http.Request) (page string, q url.Values) {
	asked := r.URL.Query()
	kept := http.Cookie{Name: cookie, Value: off, MaxAge: int(cookieLife.Seconds())} //nolint:gosec // its attributes follow
	if asked.Get(fieldTo) != off {
		kept.Value, kept.MaxAge = "", -1
	}
	// Without a Path the cookie belongs to the folder of the console, whatever prefix a proxy has put before it.
	kept.HttpOnly, kept.SameSite, kept.Secure = true, http.SameSiteLaxMode, r.TLS != nil
	http.SetCookie(w, &kept)
	back, err := url.Parse(asked.Get(fieldBack))
	if err != nil || back.Path == "./" {
		return "", nil
	}
	return back.Path, back.Query()
}
