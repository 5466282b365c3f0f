package browsertest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

const (
	// writePictures is the variable that makes TestPicturesOfTheDocs write the pictures anew.
	writePictures = "WRITE_PICTURES"
	pictures      = "../../docs/console"
	// mostBytes is the largest picture, because a page of docs has several.
	mostBytes = 60_000
)

// picture is a page on a screen.
type picture struct {
	name, page, scheme string
	screen             screen
}

// The pictures of docs/console.md are those of this test, and no others.
func TestPicturesOfTheDocs(t *testing.T) {
	desk, phone := screens()[0], screens()[2]
	list := screen{"list", desk.width, 500} // the rows of a list look alike, and take many bytes
	s := newShop(t)
	life := s.trouble()
	all := []picture{
		{"overview", "", "light", desk}, {"stuck", "stuck", "light", list}, {"dead", "dead?box=inbox", "light", list},
		{"life", "event?id=" + life, "light", desk}, {"search", "search?q=o-201", "dark", list}, {"letter", "", "dark", desk},
		{"dead-phone", "dead?box=inbox", "light", phone}, {"overview-phone", "", "dark", phone},
		{"failures", "failures", "light", list}, {"failure", "", "light", desk}, {"failure-phone", "", "dark", phone},
		{"consumer", "consumer?name=billing", "light", desk},
	}
	text, err := os.ReadFile("../../docs/console.md")
	require.NoError(t, err)
	var named []string
	for _, m := range regexp.MustCompile(`\(console/([\w-]+)\.webp\)`).FindAllStringSubmatch(string(text), -1) {
		named = append(named, m[1])
	}
	var taken []string
	for _, p := range all {
		taken = append(taken, p.name)
	}
	require.ElementsMatch(t, taken, named, "docs/console.md shows other pictures than the test takes")

	if os.Getenv(writePictures) != "" {
		b := open(t, s.serve())
		for _, p := range all {
			b.look(p.screen, p.scheme)
			switch p.name {
			case "letter":
				b.visit("dead?box=inbox")
				p.page = read(b, chromedp.AttributeValue(chromedp.CSS("a.open"), "href")).Value
			case "failure", "failure-phone":
				b.visit("")
				p.page = read(b, chromedp.AttributeValue(chromedp.CSS(`.findings a[href^="failure?"]`), "href")).Value
			}
			b.visit(p.page)
			quality := int64(50)
			shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatWebp, Quality: &quality})
			require.NoError(t, err)
			require.NoError(t, os.MkdirAll(pictures, 0o750))
			require.NoError(t, os.WriteFile(filepath.Join(pictures, p.name+".webp"), shot.Data, 0o600))
		}
	}
	files, err := os.ReadDir(pictures)
	require.NoError(t, err)
	require.Len(t, files, len(all), "%s has other files: write the pictures anew with %s=1", pictures, writePictures)
	for _, f := range files {
		require.True(t, slices.Contains(taken, f.Name()[:len(f.Name())-len(".webp")]), f.Name())
		info, err := f.Info()
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(mostBytes), f.Name())
	}
}

// trouble has what a shop in trouble has. It returns the id of an event that was tried several times.
func (s *shop) trouble() (id string) {
	s.t.Helper()
	s.stuckMessage("o-15555")
	s.remind("o-20199", time.Now().Add(time.Hour))
	s.fill()
	s.outage()
	require.NoError(s.t, s.DB.QueryRowContext(s.t.Context(), "SELECT message_key FROM inbox_parked WHERE error_message <> '' LIMIT 1").Scan(&id))
	return id
}
