# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium for tests of pages: opened, driven with the mouse and the keyboard, and asked what it logged and
loaded."""

import json
import os
import shutil
import sys
import tempfile

import recording

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
except ImportError:
    webdriver = None

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WIDTH, HEIGHT = 1400, 900


def skip_without():
    """Ends the program with 77 where there is no browser."""
    missing = next((name for name, found in (("python3-selenium", webdriver), ("chromium", CHROMIUM),
                                             ("chromium-driver", DRIVER)) if not found), None)
    if missing:
        print(f"skipped: {missing} is not installed")
        sys.exit(77)


class Browser:
    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="varve-browser-")
        options = Options()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking",
                         "--disable-gpu", f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={self.profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.driver.set_page_load_timeout(3600)  # not less than what the runner allows
        self.driver.set_script_timeout(3600)
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False})

    def close(self):
        self.driver.quit()
        shutil.rmtree(self.profile, ignore_errors=True)

    def open(self, path, is_dark=False):
        """Returns the milliseconds from the start of navigation to the first whole picture."""
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]})
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get("file://" + os.path.abspath(path))
        return self.until("const marks = performance.getEntriesByName('varve-rendered'); return marks.length ?"
                          " marks[0].startTime : null", "the page is rendered")

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def until(self, script, what):
        """What the script returns once that is more than null."""
        return recording.wait_until(lambda: [value] if (value := self.run(script)) is not None else None, what=what)[0]

    def settle(self):
        """Until what was asked for is drawn."""
        self.driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() =>"
                                         " requestAnimationFrame(() => done()))")

    def logged(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requested(self):
        """Addresses of everything that was loaded."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [message["params"]["request"]["url"] for message in messages
                if message["method"] == "Network.requestWillBeSent"]

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def press(self, selector, text):
        """The button with this text below `selector`."""
        button = next(one for one in self.find_all(f"{selector} button") if one.text == text)
        self.run("arguments[0].scrollIntoView({block: 'center'})", button)
        button.click()
        self.settle()

    def at(self, selector, x, y):
        """Actions of a mouse that is there: pixels from the upper left corner of an element."""
        element = self.find(selector)
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        box = element.rect
        return ActionChains(self.driver).move_to_element_with_offset(element, x - box["width"] / 2,
                                                                     y - box["height"] / 2)

    def click_at(self, selector, x, y):
        self.at(selector, x, y).click().perform()
        self.settle()

    def hover_at(self, selector, x, y):
        self.at(selector, x, y).perform()
        self.settle()

    def drag(self, selector, begin, end):
        self.at(selector, *begin).click_and_hold().move_by_offset(end[0] - begin[0], end[1] - begin[1]).release() \
            .perform()
        self.settle()

    def choose(self, selector, text):
        element = self.find(selector)
        self.run("""const list = arguments[0], option = [...list.options].find(one => one.text === arguments[1]);
            list.value = option.value; list.dispatchEvent(new Event('change'));""", element, text)
        self.settle()

    def colors(self, selector):
        """How many different colours a canvas has: a blank one has 1."""
        self.settle()
        return self.run("""const canvas = document.querySelector(arguments[0]);
            const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data, seen = new Set();
            for (let i = 0; i < data.length; i += 4)
                seen.add(data[i] << 24 | data[i + 1] << 16 | data[i + 2] << 8 | data[i + 3]);
            return seen.size;""", selector)
