# SPDX-License-Identifier: Apache-2.0
class ContextProp:
    def __init__(self, getter, setter):
        self.getter = getter
        self.setter = setter

    def __get__(self, instance, owner):
        return self.getter()

    def __set__(self, instance, value):
        self.setter(value)


from . import cudnn  # noqa: E402,F401
