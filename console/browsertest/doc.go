// Package browsertest drives the console in a headless Chromium. It has tests only. They use the browser that CHROME_PATH names, or a browser of
// this machine. If there is none, they install one with apt-get where that is possible.
//
//	go -C console/browsertest test ./...
//	CONSOLE_SHOTS=/tmp go -C console/browsertest test -run TestPagesFit ./...         # writes a screenshot of each page on each screen
//	WRITE_PICTURES=1 go -C console/browsertest test -run TestPicturesOfTheDocs ./...   # writes the pictures of docs/console.md
package browsertest
